"""The hatchling build hook `neuron-extension`."""

from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from .errors import BuildError
from .project import Project, parse_project
from .steps import Built, build, clean, install_in_place


class NeuronExtensionHook(BuildHookInterface[BuilderConfig]):
    """Compiles a project's C++ into its wheel, or into its source tree for an editable install."""

    PLUGIN_NAME = "neuron-extension"

    def clean(self, versions: list[str]) -> None:
        """Remove the objects."""
        clean(self._project())

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before the wheel is put together; a source distribution carries the sources as they are."""
        if self.target_name != "wheel":
            return
        try:
            built = build(self._project())
        except BuildError as error:
            # Through SystemExit the front end shows the sentence, and no traceback of the back end's inside.
            self.app.abort(f"error: {error}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        # Outputs of an earlier in-place build that the project does not exclude are packed as they lie in the tree.
        if version == "editable" or any(self._is_packed_from_tree(built, file) for file in built.files):
            install_in_place(built)
        if version != "editable":
            for file in built.files:
                if not self._is_packed_from_tree(built, file):
                    path = f"{built.project.import_name}/{file.relative_to(built.stage)}"
                    build_data["force_include"][str(file)] = path

    def _is_packed_from_tree(self, built: Built, file: Path) -> bool:
        path = built.in_place(file)
        return path.exists() and not self.build_config.path_is_excluded(str(path.relative_to(built.project.root)))

    def _project(self) -> Project:
        metadata = self.metadata.core
        return parse_project(Path(self.root), metadata.raw_name, metadata.dependencies, self.config)


@hookimpl
def hatch_register_build_hook() -> type[NeuronExtensionHook]:
    """Offer the hook to hatchling."""
    return NeuronExtensionHook
