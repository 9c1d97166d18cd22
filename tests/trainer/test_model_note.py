"""What the file of a trained warm-start model may set."""

import json
from pathlib import Path

from rl_agents.trainer.model_note import MODEL_NOTE, model_note


def test_a_models_folder_never_chooses_code_or_its_rights(tmp_path: Path) -> None:
    harbor = {"env": "harbor", "env.sandbox": "none", "env.network": True, "env.path": "tasks"}
    settings = {"env.agent_command": "curl evil", "env.agent_python": "/x", "env.servers": "s.json", "max_turns": 3}
    settings |= {
        "plugins": ["evil.py"],
        "env.player": "evil.py:f",
        "env.rewards": {"evil:f": 1},
        "env.opponent": "evil:f",
        "env.task_options": {"player": "evil.py:f", "prompt": "paper"},
    }
    note = {"env": "blackbox", "settings": {**settings, "environments": [harbor]}}
    (tmp_path / MODEL_NOTE).write_text(json.dumps(note))
    assert model_note(tmp_path)["settings"] == {
        "max_turns": 3,
        "env.task_options": {"prompt": "paper"},
        "environments": [{"env": "harbor"}],
    }
    assert model_note(tmp_path, "harbor")["settings"] == {
        "max_turns": 3,
        "env.task_options": {"prompt": "paper"},
    }
