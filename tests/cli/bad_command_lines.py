"""Command lines that are refused, with a part of the error message: ``ARGUMENTS => WORDS``."""

ROWS = """
--set group_size=2.5 => group_size=2.5: must be a valid integer, got a number with a fractional part
--set group_size=true => group_size=True: must be a number
--set lr=inf => lr='inf': must be a finite number
--set betas=[0.9] => betas=[0.9]: two numbers are needed
--set success_replay=2 top_p=0.9 old_logprobs=learner algo=chain-gae => top_p=0.9 does not work with success_replay
--set top_p=0.9 => top_p=0.9 needs old_logprobs=learner: the engine's logprobs are those of the nucleus, the
--set max_response_tokens=300 max_model_len=256 => max_response_tokens=300 leaves no room for a prompt in max_model_le
--seed -1 => seed=-1: must be at least 0
--seed x => argument --seed: invalid int value: 'x' (see run.py --help)
--set context=window => context='window': valid: append, window(n)
--set placement=colocate num_env_runners=0 => placement=colocate: needs num_env_runners of 1 or more
--set placement=colocate engine_mode=async => placement=colocate: engine_mode=async has processes of its own
--set tensor_parallel=2 => tensor_parallel=2 needs engine_mode=async
--set learner_sharding=fsdp => learner_sharding=fsdp needs num_learners of 2 or more, not 0
--set optimizer=muon learner_sharding=fsdp num_learners=2 => learner_sharding=fsdp with optimizer=muon: Muon needs who
--set truncation=t4 => unknown truncation 't4': did you mean 't3'?
--set reward=judge => unknown reward 'judge': valid: environment, prs
--set reward=prs prs_form=general judge=openai => judge=openai needs judge_url
--set prompting=reflexion truncation=t3 => prompting=reflexion runs several attempts in one episode; it needs truncat
--set algo= => unknown algorithm '':
--config '' => --config '': the value is empty; is a shell variable unset?
eval --model= --local => --model '': the value is empty; is a shell variable unset?
--algo 3SPO --env alfworld => unknown algorithm '3SPO': did you mean '3spo'?
--algo 3spo --env guess_numbers --set search_steps=9 truncation=t3 => truncation=t3 does not work with algo 3spo: it
--set stream=true async_level=1 => stream with async_level=1: the two are mutually exclusive
--set stream=true num_env_runners=0 => stream needs num_env_runners of 1 or more
--algo sft --set async_level=1 => key 'async_level' has no effect with algo sft: it trains on demonstrations
--algo 3spo --env guess_numbers --set search_steps=9 async_level=2 => async_level=2: 3spo chooses states by
--set env.prompt=chatty => env.prompt='chatty': valid: paper, compact
--set env.nope=1 => unknown option of environment guess_numbers 'env.nope': did you mean 'env.progress'?
--set =1 => --set =1: write it as key=value
--set lr=[1 => --set lr=[1: the value is not valid YAML
--set env.max_turns=3 => env.max_turns is not a key: set max_turns, which holds for the environment, too
--env webshop --set env.catalogue=nowhere => env.catalogue=nowhere: valid: small, generated, a folder or
--env webshop --set env.success_reward=5 => key 'env.success_reward' has no effect without env.reward=success
--env multihop_qa --set env.questions=nowhere.json => env.questions=nowhere.json: no such file or folder; va
--set LR=1 => unknown key 'LR': did you mean 'lr'?
--env mcp => environment mcp has no scripted player, so no warm-start model: set model=DIR
--env blackbox => environment blackbox needs an agent: env.agent_command='python my_agent.py {task_id}', or env.agent=
--env blackbox --set env.agent=a:b env.agent_command=sh => set env.agent_command or env.agent, not both
--env blackbox --set env.agent=nowhere:b env.tasks=guess_numbers => env.agent=nowhere:b: there is no module nowhere in
--env mcp --set model=. => environment mcp needs env.tasks=FILE, a table of questions with answers
--env situation_puzzles --set env.judge=gpt => env.judge='gpt': valid: rule, openai
--set batch_size=3 => unknown key 'batch_size': set tasks_per_iteration (tasks) and group_size (rollout
--set lr=1 learning_rate=2 => 'lr' and 'learning_rate' are the same key: keep one of them
--local --set engine=vllm => --local means engine=torch, but engine=vllm is given
--resume x => x: no such folder
--resume . => not the output folder of a run (no config.yaml)
--config . => .: is a directory
--output => argument --output: expected one argument (see run.py --help)
--bogus => unknown flag '--bogus': did you mean '--output'?
train extra => unexpected argument 'extra' (see run.py --help)
eval --model x --checkpoint y => --checkpoint and --model exclude each other; --compare DIR DIR takes several policies
eval --model . --temperature nan => .: no Hugging Face model there (no config.json)
eval --model . --episodes 0 => --episodes 0: must be at least 1
eval --model . --temperature -1 => .: no Hugging Face model there (no config.json)
eval --checkpoint . => not the output folder of a run (no config.yaml)
eval --compare react:nowhere => nowhere: no such folder
sft --env gymnasium:CartPole-v1 => environment gymnasium:CartPole-v1 has no scripted player, so no warm-start model
gateway --model . --pool . => --pool .: a folder; name a file, such as pool.sqlite
doctor --quick --gpu-memory 24 => --gpu-memory 24: is for the check of a recipe: give --config RECIPE
doctor --quick --set lr=1 => --quick only checks package versions: leave it out, or give no --config, --set or
play --set learning_rate=1 => --set lr=1.0: play samples no model and trains none; it uses env.KEY, plugins
sft --set algo=ppo => --set algo=ppo: the sft command has a flag for it, or does not use it
sft --iterations 3 => --seed, --iterations and --set make a model other than the cached one: give --output DIR
sft --output o --iterations 3 --set iterations=4 => iterations is given twice: by its flag (3) and by --set iterations=4
tune => tune needs a sweep file, such as tune_configs/sweeps/vspo_small.yaml (see run.py tune --he
tune nowhere.yaml => nowhere.yaml: no such file
tune --resume . => --resume .: not the output folder of a sweep (no sweep.yaml)
list extra => unknown kind 'extra': valid: agents, algorithms, engines, environments, judges, r
list recipes --keys => list recipes: --keys and --schema are no lists of one kind; leave one of them out
pivot => pivot needs a step: demo-traces, extract, profile, filter (see run.py pivot --help)
pivot extract => the following arguments are required: --traces, --output (see run.py pivot extract --help)
pivot extract --traces nowhere --output o => nowhere: no such file or folder
serve => checkpoint is missing: name a run's folder, a checkpoint or a model folder
serve --port 99999999 --checkpoint . => --port 99999999: must be between 1 and 65535
evl => unknown command 'evl': did you mean 'eval'?
--env multihop_qa --set env.retriever=dense => env.retriever=dense needs env.retriever_model=DIR
--seed 1 --set seed=2 => seed is given twice
--set model=no/such/model => no/such/model
--pool nowhere => nowhere: no such pool
--pool p --set group_size=4 => key 'group_size' has no effect with pool=p
--pool p --set pool=q => pool is given twice
--pool p --algo 3spo --env guess_numbers => pool=p: 3spo samples at states of its own choice
eval --model . --set model=x => --set model=x: the eval command has a flag for it
eval --model . --set eval_temperature=1 --temperature 0 => eval_temperature is given twice: by its flag (0.0)
eval => eval needs one of --checkpoint DIR, --model DIR and --compare DIR DIR ...
eval --model . --split dev => invalid choice: 'dev'
""".strip().splitlines()
