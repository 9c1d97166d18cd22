#!/bin/bash
# A Ray cluster inside a Slurm allocation: one raylet a node, the run on the first node.
#   sbatch clusters/slurm.sh --config tune_configs/recipes/alfworld_gigpo.yaml --output $SCRATCH/runs/alfworld \
#     --set model=$SCRATCH/models/qwen2.5-1.5b num_learners=8 gpus_per_learner=1 num_engines=8 gpus_per_engine=1
# Slurm sends SIGTERM 120 seconds before the end of the time: the run saves a checkpoint and leaves, and the job is
# queued again and goes on from it.
#SBATCH --job-name=rl-agents
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

RL_AGENTS=${RL_AGENTS:-$SLURM_SUBMIT_DIR}
PORT=6379
cd "$RL_AGENTS"
source .venv/bin/activate

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
address=$(srun --nodes=1 --ntasks=1 -w "${nodes[0]}" hostname --ip-address | awk '{print $1}')

# Whoever is on the network could run code on an open Ray cluster: every node shows this secret.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$RL_AGENTS/.ray-token-$SLURM_JOB_ID"
(umask 077; python -c 'import secrets; print(secrets.token_hex(32), end="")' > "$RAY_AUTH_TOKEN_PATH")
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

srun --nodes=1 --ntasks=1 -w "${nodes[0]}" ray start --head --block --node-ip-address="$address" --port=$PORT \
  --disable-usage-stats &
sleep 20
for node in "${nodes[@]:1}"; do
  srun --nodes=1 --ntasks=1 -w "$node" ray start --block --address="$address:$PORT" --disable-usage-stats &
done

export RAY_ADDRESS="$address:$PORT"
arguments=("$@")
output=""
for ((i = 0; i < $#; i++)); do
  if [ "${arguments[i]}" = --output ]; then output=${arguments[i + 1]}; fi
done
if [ -n "$output" ] && compgen -G "$output/checkpoints/[0-9]*" > /dev/null; then
  arguments=(--resume "$output")
fi
python run.py "${arguments[@]}" &
run=$!
trap 'kill -TERM $run' TERM
code=0
wait $run || code=$?
if kill -0 $run 2> /dev/null; then
  wait $run || code=$?
fi
if [ "$code" = 130 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
