"""What pyproject.toml cannot say: tune_configs/ travels in the package, with the commit that a wheel is of."""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent.resolve()
sys.path.insert(0, str(HERE))
from rl_agents.installation import git_commit  # noqa: E402  (the package beside this file; it needs no library)


class BuildPackage(build_py):
    """An editable installation finds tune_configs/ beside the package; a wheel gets a copy."""

    def run(self) -> None:
        if self.editable_mode:
            return super().run()
        shutil.rmtree(self.build_lib, ignore_errors=True)  # files of an earlier build would be packed, too
        super().run()
        package = Path(self.build_lib) / "rl_agents"
        shutil.copytree(HERE / "tune_configs", package / "tune_configs")
        if commit := git_commit(HERE):
            (package / "commit.txt").write_text(f"{commit}\n", encoding="utf-8")


setup(cmdclass={"build_py": BuildPackage})
