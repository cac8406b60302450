"""What pyproject.toml cannot say: how Cython's modules are translated, and what they share.

They are translated in as many processes as there are cores, before the C compiler starts.
Cython's own support code, which is mostly about memoryviews, becomes a module that all
others import, instead of a copy in each of eighty. The data source for Spark has its own,
because executors get its package alone. No compiled object is ever pickled: that code is
left out.
"""

import os
import warnings
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SHARED = "_cython_shared"
STANDS_ALONE = "pyspark_jetstream."


class TranslatingBuild(build_ext):
    """Translates all modules at once; setuptools then compiles what is new."""

    def finalize_options(self) -> None:
        modules = self.distribution.ext_modules
        for name in (SHARED, STANDS_ALONE + SHARED):
            if all(module.name != name for module in modules):
                modules.append(Extension(name, [f"build/{name}.c"]))
        self.parallel = self.parallel or os.cpu_count()
        super().finalize_options()

    def get_source_files(self) -> list[str]:
        return [path for path in super().get_source_files() if Path(path).parts[0] != "build"]

    def run(self) -> None:
        if self.editable_mode:  # setuptools gives it an empty directory, to compile all once more
            ours = self.distribution.get_command_class("build")(self.distribution)
            ours.ensure_finalized()
            self.build_lib, self.build_temp = ours.build_platlib, ours.build_temp
        super().run()

    def build_extensions(self) -> None:
        Path("build").mkdir(exist_ok=True)
        apart = [module for module in self.extensions if module.name.startswith(STANDS_ALONE)]
        self.translate([module for module in self.extensions if module not in apart], SHARED)
        self.translate(apart, STANDS_ALONE + SHARED)
        super().build_extensions()

    def translate(self, modules: list[Extension], shared: str) -> None:
        translated = cythonize(
            modules,
            nthreads=self.parallel,
            quiet=True,
            force=self.force,
            shared_utility_qualified_name=shared,
            compiler_directives={"auto_pickle": False},
        )
        for module, done in zip(modules, translated, strict=True):
            module.sources = done.sources


warnings.filterwarnings("ignore", message=".*ext-modules.*experimental")
setup(cmdclass={"build_ext": TranslatingBuild})
