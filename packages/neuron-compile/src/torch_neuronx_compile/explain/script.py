"""Explain a program: run a script as ``python script.py`` would, and watch."""

import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from torch_neuronx_compile.explain.recorder import recording
from torch_neuronx_compile.explain.report import Explanation

_INTERRUPTED = 130


def explain_script(path: Path, arguments: Sequence[str]) -> tuple[Explanation, int]:
    """Run ``path`` with ``arguments`` and return what was compiled in it, and the exit code it would have had.

    What the script raises goes to stderr as it would have gone; the explanation holds it too.
    """
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [str(path), *arguments], str(path.parent)
    failure: BaseException | None = None
    code = 0
    with recording() as recorder:
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            code = _exit_code(end)
        except KeyboardInterrupt as interrupt:
            failure, code = interrupt, _INTERRUPTED
        except Exception as error:  # the script's own, whatever it is
            failure, code = error, 1
            _print(error, path)
        finally:
            sys.argv, sys.path[0] = before
        return recorder.explanation(path.name, failure), code


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _print(error: BaseException, path: Path) -> None:
    """Print the traceback from the script's own frames on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(path):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)
