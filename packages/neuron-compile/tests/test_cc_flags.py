"""The flags of neuronx-cc, checked before anything compiles and on the emulator too."""

import pytest
import torch

from torch_neuronx.errors import ConfigurationError
from torch_neuronx_compile.compilers.neuronx_cc.flags import FLAGS, command_line, parse
from torch_neuronx_compile.metrics import get_dynamo_metrics

from .helpers import compiled

ACCEPTED = [
    ("--optlevel 1", {"--optlevel": "1"}),
    ("--optlevel=3", {"--optlevel": "3"}),
    ("-O1", {"--optlevel": "1"}),
    ("-O 2", {"--optlevel": "2"}),
    ("-O1 --optlevel=2", {"--optlevel": "2"}),
    ("-lnc 2", {"--lnc": "2"}),
    ("--logical-nc-config=1", {"--lnc": "1"}),
    ("--target trn2", {"--target": "trn2"}),
    ("--model-type=transformer", {"--model-type": "transformer"}),
    ("--auto-cast all --auto-cast-type fp8_e4m3", {"--auto-cast": "all", "--auto-cast-type": "fp8_e4m3"}),
    ("--native-int64=enabled", {"--native-int64": "enabled"}),
    ("--implicit-integer-downcast=dot,pow", {"--implicit-integer-downcast": "dot,pow"}),
    ("--implicit-integer-downcast none", {"--implicit-integer-downcast": "none"}),
    ("--distribution-strategy=llm-training", {"--distribution-strategy": "llm-training"}),
    (
        "--enable-mixed-precision-accumulation --disable-mixed-precision-accumulation",
        {"--disable-mixed-precision-accumulation": ""},
    ),
    ("--enable-saturate-infinity", {"--enable-saturate-infinity": ""}),
    ("--enable-fast-context-switch", {"--enable-fast-context-switch": ""}),
    ("--enable-fast-loading-neuron-binaries", {"--enable-fast-loading-neuron-binaries": ""}),
    ("--verbose=debug --logfile=log.txt", {"--logfile": "log.txt", "--verbose": "debug"}),
    ("--pipeline compile SaveTemps -O1", {"--optlevel": "1", "--pipeline": "compile SaveTemps"}),
    ("--internal-tensorizer-opt-level=2", {"--internal-tensorizer-opt-level": "2"}),
    ("--tensorizer-options='--a=1 --b'", {"--tensorizer-options": "--a=1 --b"}),
]

REFUSED = [
    ("--optlevl=1", r"NEURON_CC_FLAGS has the flag '--optlevl'.*Did you mean --optlevel.*Known are: --target"),
    ("--zzz", r"has the flag '--zzz', which neuronx-cc does not have\. Known are"),
    ("--optlevel=4", r"gives --optlevel the value '4', which neuronx-cc does not take. Use one of 1, 2, 3"),
    ("-O9", r"gives -O the value '9'"),
    ("--optlevel", r"gives --optlevel no value"),
    ("--model-type=llm", r"--model-type the value 'llm'.*generic, transformer, unet-inference"),
    ("--auto-cast-type=fp4", r"--auto-cast-type the value 'fp4'"),
    ("--implicit-integer-downcast=dot,add", r"the value 'dot,add'.*dot,scatter"),
    ("--internal-tensorizer-opt-level=high", r"Use a whole number"),
    ("--enable-fast-context-switch=1", r"takes no value"),
    ("transformer", r"belongs to no flag"),
    ("--framework=XLA", r"cannot be set there.*always XLA"),
    ("--output x.neff", r"cannot be set there"),
    ("--cache_dir=/a", r"Set TORCH_NEURONX_NEFF_CACHE_DIR"),
    ("--retry_failed_compilation", r"does not have"),
    ("--logfile='a", r"cannot be split into flags.*Close the quotes"),
]


@pytest.mark.parametrize(("text", "flags"), ACCEPTED, ids=[text for text, _ in ACCEPTED])
def test_accepted(text: str, flags: dict[str, str]) -> None:
    import shlex

    assert parse(shlex.split(text), "flags") == flags
    assert parse(command_line(flags), "flags") == flags


@pytest.mark.parametrize(("text", "says"), REFUSED, ids=[text for text, _ in REFUSED])
def test_refused_before_anything_compiles(text: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_CC_FLAGS", text)
    with pytest.raises(ConfigurationError, match=says):
        compiled(lambda x: x + 1)(torch.ones(2, device="neuron"))
    assert get_dynamo_metrics() == []


def test_every_flag_has_a_case() -> None:
    tried = {name for _, flags in ACCEPTED for name in flags} | {"--enable-mixed-precision-accumulation"}
    untried = {flag.name for flag in FLAGS} - tried
    assert untried == {
        "--enable-internal-neff-wrapper",
        "--internal-backend-options",
        "--internal-compiler-debug-mode",
        "--logfile-verbose",
    }
