"""The files in clusters/ against what reads them: KubeRay's schema, Ray's launcher, Ray Serve, bash."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rl_agents.cli.parser import main_parser
from rl_agents.config.loading import preset_files

CLUSTERS = Path(__file__).parents[1] / "clusters"
SHARED = Path(os.environ.get("RL_AGENTS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
KUBERAY = sorted((CLUSTERS / "kuberay").glob("*.yaml"))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def schema_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    file = SHARED / "kuberay_crds" / f"ray.io_{manifest['kind'].lower()}s.yaml"
    if not file.is_file():
        pytest.skip(f"no KubeRay definitions at {file}")
    versions = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["spec"]["versions"]
    version = manifest["apiVersion"].removeprefix("ray.io/")
    return next(v["schema"]["openAPIV3Schema"] for v in versions if v["name"] == version)


def unknown_fields(value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Return fields that the API server would refuse (Kubernetes' schemas lack ``additionalProperties: false``)."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from unknown_fields(item, schema.get("items", {}), f"{path}[{number}]")
    if isinstance(value, dict) and "properties" in schema:
        for name, item in value.items():
            if name in schema["properties"]:
                yield from unknown_fields(item, schema["properties"][name], f"{path}.{name}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{name}"


@pytest.mark.parametrize("path", KUBERAY, ids=lambda path: path.stem)
def test_kuberay_accepts_the_manifest(path: Path) -> None:
    manifest = load(path)
    schema = schema_of(manifest)
    jsonschema.Draft7Validator(schema).validate(manifest)
    found = [name for name in unknown_fields(manifest, schema) if not name.startswith(".metadata.")]
    assert not found


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_rays_launcher_accepts_the_cluster(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    filled = prepare_config(load(CLUSTERS / f"{name}.yaml"))
    validate_config(filled)  # raises
    assert filled["head_node_type"] in filled["available_node_types"]


def test_ray_serve_accepts_the_application() -> None:
    from ray.serve.schema import ServeDeploySchema

    service = load(CLUSTERS / "kuberay" / "rayservice.yaml")
    schema = ServeDeploySchema(**yaml.safe_load(service["spec"]["serveConfigV2"]))
    assert [app.import_path for app in schema.applications] == ["rl_agents.serving.app:build"]


@pytest.mark.parametrize(
    "path", [*CLUSTERS.glob("*.yaml"), CLUSTERS / "slurm.sh", *KUBERAY], ids=lambda path: path.name
)
def test_recipes_that_are_named_exist(path: Path) -> None:
    words = path.read_text(encoding="utf-8").split()
    recipes = [after for word, after in pairwise(words) if word == "--config"]
    assert all((CLUSTERS.parent / recipe).is_file() or recipe in preset_files() for recipe in recipes)


def test_scripts_are_valid_bash_and_the_skypilot_task_runs_what_the_command_line_reads() -> None:
    task = load(CLUSTERS / "skypilot.yaml")
    for script in (task["setup"], task["run"], (CLUSTERS / "slurm.sh").read_text(encoding="utf-8")):
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    parsed = 0
    for line in task["run"].splitlines():
        _, found, flags = line.partition("run.py ")
        if found:
            main_parser().parse(shlex.split(flags.replace("$RUN", "/runs/alfworld")))
            parsed += 1
    assert parsed == 2 and task["file_mounts"].keys() == {"/runs"}, "both continue in the bucket"


def test_the_dev_container_is_json_and_sets_up_with_make() -> None:
    container = json.loads((CLUSTERS.parent / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    target = container["postCreateCommand"].removeprefix("make ")
    assert f"\n{target}:" in (CLUSTERS.parent / "Makefile").read_text(encoding="utf-8")
