#!/bin/bash
answer=$(cat answer.txt)
[ "$answer" = red ] && right=1 || right=0
grep -q "^$answer " boxes.txt && color=1 || color=0
echo "{\"reward\": $right, \"color\": $color}" > /logs/verifier/reward.json
