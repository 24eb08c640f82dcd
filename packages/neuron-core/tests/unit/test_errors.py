"""Error classes: codes, built-in bases, documentation."""

import inspect
import pickle
import re
from pathlib import Path

import pytest

from torch_neuronx import errors

DOCS = Path(__file__).resolve().parents[4] / "docs" / "errors.md"
CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, errors.NeuronError) and value.__module__ == errors.__name__
]


def test_codes_are_slugs_and_unique() -> None:
    codes = [cls.code for cls in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code) for code in codes)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.ConfigurationError, ValueError),
        (errors.MissingExtraError, ImportError),
        (errors.BrokenInstallError, ImportError),
        (errors.LegacyPackageError, ImportError),
        (errors.UnsupportedOperatorError, NotImplementedError),
        (errors.UnsupportedDtypeError, TypeError),
        (errors.IntegerRangeError, OverflowError),
        (errors.NeffFormatError, ValueError),
        (errors.DuplicatePluginNameError, errors.PluginError),
    ],
)
def test_each_is_also_the_builtin_that_code_catches(cls: type[errors.NeuronError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin, match="what happened"):
        raise cls("what happened")
    assert issubclass(cls, RuntimeError)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.code)
def test_survives_pickling(cls: type[errors.NeuronError]) -> None:
    copy = pickle.loads(pickle.dumps(cls("what happened")))
    assert type(copy) is cls
    assert str(copy) == "what happened"


def test_missing_extra_says_the_install_line() -> None:
    error = errors.MissingExtraError.for_extra("compile", "torch.compile(backend='neuron')")
    assert "pip install 'torch-neuronx[compile]'" in str(error)
    assert str(error).startswith("torch.compile(backend='neuron') needs")


def test_the_page_has_one_section_for_each_class_and_no_other() -> None:
    headings = re.findall(r"^## `(\w+)` \(`([\w-]+)`\)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted((cls.__name__, cls.code) for cls in CLASSES)
