"""Command lines that are refused, with a part of the error message: ``ARGUMENTS => WORDS``."""

ROWS = """
--set group_size=2.5 => group_size=2.5: must be a valid integer, got a number with a fractional part
--set group_size=true => group_size=True: must be a number
--set lr=inf => lr='inf': must be a finite number
--set betas=[0.9] => betas=[0.9]: two numbers are needed
--set success_replay=2 top_p=0.9 old_logprobs=learner algo=chain-gae => top_p=0.9 does not work with success_replay
--set top_p=0.9 old_logprobs=learner rollout_correction=token_tis => top_p=0.9 does not work with rollout_correction=t
--set dual_clip=0.5 => dual_clip=0.5: must be above 1, or 0
--set algo=cispo dual_clip=3 => key 'dual_clip' has no effect with algo cispo
--set top_p=0.9 => top_p=0.9 needs old_logprobs=learner: the engine's logprobs are those of the nucleus, the
--set max_response_tokens=300 max_model_len=256 => max_response_tokens=300 leaves no room for a prompt in max_model_le
--seed -1 => seed=-1: must be at least 0
--set seed=1 seed=2 => --set gives seed twice: 1 and 2
--seed 1 --seed 2 => --seed is given twice: 1 and 2
--seed x => argument --seed: invalid int value: 'x' (see run.py --help)
--set context=window => context='window': valid: append, window(n), summary(n)
--set tensor_parallel=2 => key 'tensor_parallel' has no effect without engine_mode=async
--set learner_sharding=fsdp => key 'learner_sharding' has no effect without num_learners
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
--algo sft --set expert_data=x => key 'expert_data' has no effect with algo sft: it trains on demonstrations
--set ce_coef=1 => key 'ce_coef' has no effect without expert_data
--algo sft --set async_level=1 => key 'async_level' has no effect with algo sft: it trains on demonstrations
--algo 3spo --env guess_numbers --set search_steps=9 async_level=1 => async_level=1 does not work with algo 3spo: it
--set env.prompt=chatty => env.prompt='chatty': valid: paper, compact
--set env.nope=1 => unknown option of environment guess_numbers 'env.nope': valid: env.progress, env.prompt
--set =1 => --set =1: write it as key=value
--set lr=[1 => --set lr=[1: the value is not valid YAML
--set env.max_turns=3 => env.max_turns is not a key: set max_turns, which holds for the environment, too
--env webshop --set env.catalogue=nowhere => env.catalogue=nowhere: valid: small, generated, a folder or
--env webshop --set env.success_reward=5 => key 'env.success_reward' has no effect without env.reward=success
--env multihop_qa --set env.questions=nowhere.json => env.questions=nowhere.json: no such file or folder; va
--set LR=1 => unknown key 'LR': did you mean 'lr'?
--env guess_numbers,circuit_decodin => unknown environment 'circuit_decodin': did you mean 'circuit_decoding'?
--env guess_numbers,circuit_decoding --algo 3spo => 3spo compares states, which several environments do not share; ta
--env guess_numbers,circuit_decoding --set env.circuits=2 => environment guess_numbers: unknown option of environment
--env guess_numbers,circuit_decoding --set expert_data=x.jsonl => expert_data=x.jsonl does not work with several envir
--set 'environments=[{env: webshop, lr: 1}]' => environments, entry 1: 'lr' holds for the whole run: write it outside of
--set 'environments=[{env: webshop, max_turn: 1}]' => environments, entry 1: unknown key 'max_turn': did you mean 'max_t
--set environments=[] => environments=[]: it lists none; give entries such as {env: NAME}, or set env=NAME
--set environments=[webshop] => environments=['webshop']: entry 1: must be a valid mapping, such as {env: NAME}
--set 'environments=[{weight: 1}]' => environments, entry 1: `env` is missing
--set 'environments=[{env: webshop, weight: 0}]' => environments, entry 1: weight=0: must be above 0
--set 'environments=[{env: webshop},{env: webshop}]' => environments, entry 2: webshop occurs twice: give one of them an
--set 'environments=[{env: webshop, name: a::b}]' => environments, entry 1: `name` must not contain ::
--env guess_numbers --set 'environments=[{env: webshop}]' => env=guess_numbers and environments are mutually exclusive
--env mcp => environment mcp has no scripted player, so no warm-start model: set model=DIR
--env blackbox => environment blackbox needs an agent: env.agent_command='python my_agent.py {task_id}', or env.agent=
--env blackbox --set env.agent=a:b env.agent_command=sh => set env.agent_command or env.agent, not both
--env blackbox --set env.agent=nowhere:b env.tasks=guess_numbers => env.agent=nowhere:b: there is no module nowhere in
--env mcp --set model=. => environment mcp needs env.tasks=FILE, a table of questions with answers
--env situation_puzzles --set env.judge=gpt => env.judge='gpt': valid: rule, openai
--set batch_size=3 => unknown key 'batch_size': set tasks_per_iteration (tasks) and group_size (rollout
--set lr=1 learning_rate=2 => 'lr' and 'learning_rate' are the same key: keep one of them
--local --set engine=vllm => --local means engine=torch, but engine=vllm is given; for one process with other keys set n
--resume x => x: no such folder
--resume . => not the output folder of a run (no config.yaml)
--config . => .: is a directory
--output => argument --output: expected one argument (see run.py --help)
--bogus => unknown flag '--bogus': valid: --algo, --config, --env
--lr 1e-4 => --lr is no flag but a key: write --set lr=VALUE
--eval-episodes=3 => --eval-episodes=3 is no flag but a key: write --set eval_episodes=3
view --lr 3 => unknown flag '--lr': did you mean '--port'?
--set output=o => --set output=o: write --output o
--set local=true => --set local=true: write --local
serve --checkpoint . --set model=x => --set model=x: write --checkpoint x
serve --checkpoint . --set port=1 => --set port=1: write --port 1
eval --checkpoint R --set eval_episodes=112 => --set eval_episodes=112: write --episodes 112
eval --checkpoint R --set seed=1 => --set seed=1: write --seed 1
gateway --model . --set engine=torch => --set engine=torch: write --engine torch
sft --set env=webshop => --set env=webshop: write --env webshop
pivot profile --traces t --model m --set group_size=3 => --set group_size=3: write --rollouts 3
pivot profile --traces t --model m --set algo=grpo => --set algo=grpo: pivot profile sets it itself
tune s.yaml --set output=o => --set output=o: write --output o
--set learning_rte=1e-4 => unknown key 'learning_rte': did you mean 'learning_rate'?
--set aplha=3 => unknown key 'aplha': did you mean hgpo_alpha or lora_alpha or score_alpha or vspo_alpha? A key of the
--set value_loss_coeff=1 => unknown key 'value_loss_coeff': set critic_lr (the critic has an optimizer of its own) ins
--set gruop_size=4 => unknown key 'gruop_size': did you mean 'group_size'?
--set batch_sze=3 => unknown key 'batch_sze': set tasks_per_iteration (tasks) and group_size (rollouts of each) instead
--set tasks=x.jsonl => unknown key 'tasks': did you mean 'tasks_changed'? A key of the environment is env.tasks
--set xyzzy=1 => unknown key 'xyzzy': `run.py list --keys` shows all. A key of the environment is env.xyzzy
--set env.pompt=x => unknown option of environment guess_numbers 'env.pompt': did you mean 'env.prompt'?
--env gymnasum:market:Market => unknown environment 'gymnasum:market:Market': did you mean 'gymnasium:market:Market'?
--env market.py:Market => did you mean 'gymnasium:market.py:Market'?
--env clas:market:Market => unknown environment 'clas:market:Market': did you mean 'class:market:Market'?
--env class:market => environment class:market: write <module>:<name>
--env CartPole-v1 => unknown environment 'CartPole-v1': did you mean 'gymnasium:CartPole-v1'?
--env gymnasium:CartPole => unknown gymnasium environment 'CartPole': did you mean 'CartPole-v1'?
--env gymnasium:market => unknown gymnasium environment 'market': gymnasium registers none of that name. Your own is gym
--env guess => unknown environment 'guess': did you mean 'guess_numbers'?
--algo gpro => unknown algorithm 'gpro': did you mean 'grpo'?
--algo reinforce_plus_plus => did you mean 'reinforce++'?
--algo t3 => unknown algorithm 't3': valid: 3spo, chain-gae
--config guess_number_grpo => unknown recipe 'guess_number_grpo': did you mean 'guess_numbers_grpo'?
--config grpo => unknown recipe 'grpo': `run.py list recipes` shows all
train extra => unexpected argument 'extra' (see run.py --help)
eval --model x --checkpoint y => --checkpoint and --model exclude each other; --compare DIR DIR takes several policies
eval --model . --episodes 0 => --episodes 0: must be at least 1
eval --model . --temperature -1 => .: no Hugging Face model there (no config.json)
eval --checkpoint . => not the output folder of a run (no config.yaml)
eval --compare react:nowhere => nowhere: no such folder
sft --env gymnasium:CartPole-v1 => environment gymnasium:CartPole-v1 has no scripted player, so no warm-start model
gateway --model . --pool . => --pool .: a folder; name a file, such as pool.sqlite
doctor --quick --set lr=1 => --quick only checks package versions: leave it out, or give no --config, --set or
sft --set algo=ppo => --set algo=ppo: the sft command imitates a scripted player; it has no other algorithm
sft --iterations 3 => --seed, --iterations and --set make a model other than the cached one: give --output DIR
tune => tune needs a sweep file, such as tune_configs/sweeps/vspo_small.yaml (see run.py tune --he
tune nowhere.yaml => nowhere.yaml: no such file
tune --resume . => --resume .: not the output folder of a sweep (no sweep.yaml)
list extra => unknown kind 'extra': valid: algorithms, engines, environments, judges, r
list recipes --keys => list recipes: --keys and --schema are no lists of one kind; leave one of them out
pivot => pivot needs a step: demo-traces, extract, profile, filter (see run.py pivot --help)
pivot extract => the following arguments are required: --traces, --output (see run.py pivot extract --help)
pivot extract --traces nowhere --output o => nowhere: no such file or folder
serve => checkpoint is missing: name a run's folder, a checkpoint or a model folder
serve --port 99999999 --checkpoint . => --port 99999999: must be between 1 and 65535
evl => unknown command 'evl': did you mean 'eval'?
--env multihop_qa --set env.retriever=dense => unknown option of environment multihop_qa 'env.retriever': valid:
--seed 1 --set seed=2 => seed is given twice
--set model=no/such/model => no/such/model
--pool nowhere => nowhere: no such pool
--pool p --set group_size=4 => key 'group_size' has no effect with pool=p
--pool p --algo 3spo --env guess_numbers => pool=p: 3spo samples at states of its own choice
eval --model . --set eval_temperature=1 --temperature 0 => eval_temperature is given twice: by its flag (0.0)
eval => eval needs one of --checkpoint DIR, --model DIR and --compare DIR DIR ...
eval --model . --split dev => invalid choice: 'dev'
""".strip().splitlines()
