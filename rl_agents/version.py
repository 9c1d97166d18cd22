"""The version, here and nowhere else: pyproject.toml, ``--version`` and every run's build.json read it."""

__version__ = "0.1.0"
