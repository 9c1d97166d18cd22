"""The version, which pyproject.toml, ``--version`` and every run's build.json read from here."""

__version__ = "0.1.0"
