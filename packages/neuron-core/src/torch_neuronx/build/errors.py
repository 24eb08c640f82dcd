"""What can go wrong while compiling, each with one sentence that says what to do."""


class BuildError(RuntimeError):
    """The compiled part of a distribution cannot be built."""


class BuildConfigError(BuildError):
    """The hook's table in `pyproject.toml` is not valid."""


class CompilerMissingError(BuildError):
    """No C++ compiler on this machine."""


class NinjaMissingError(BuildError):
    """The build tool ninja is not installed for this Python."""


class TorchMissingError(BuildError):
    """torch cannot be imported in the environment that builds."""


class TorchMismatchError(BuildError):
    """The installed torch (or torch-neuronx) is not one this distribution declares it works with."""


class CompileFailedError(BuildError):
    """The compiler, the linker or the code generator reported an error."""
