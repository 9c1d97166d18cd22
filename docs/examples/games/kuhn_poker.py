"""Kuhn poker (Kuhn 1950), a game that a policy plays against itself: docs/how-to/self-play.md.

Three cards, one for each player, an ante of one chip, and a bet of one chip. The reward is the number of chips won. A
task is a deal and a seat: in ``QK0`` the first player has the queen, and the agent is the first player if the
environment plays the second one, by random moves.
"""

import random
import re
from itertools import permutations

import gymnasium

CARDS = "JQK"
RULES = (
    "Kuhn poker: the deck is J, Q and K, and each player has one card and pays one chip. A bet is one chip. Who calls "
    "pays one chip, too, and the higher card wins. You are the {place} player. Your card is {card}."
)
#: Moves without a bet and after one. The first passes (p), the second puts a chip into the pot (b).
MOVES = {False: ("check", "bet"), True: ("fold", "call")}
TOLD = {"": "", "p": " The other player checks.", "b": " The other player bets."}
#: Final histories, and the chips that the first player wins; None: they depend on the cards.
ENDS = {"pp": None, "bp": 1, "bb": None, "pbp": -1, "pbb": None}


def first_players_chips(cards, history):
    """Return the chips that the first player wins at the end."""
    pot = 2 if history.endswith("bb") else 1
    return ENDS[history] or (pot if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -pot)


class KuhnPoker(gymnasium.Env):
    action_space = observation_space = gymnasium.spaces.Text(max_length=10000)
    seats, max_turns, blocking = 2, 2, "inline"

    @staticmethod
    def task_ids(split):
        return [f"{first}{second}{seat}" for first, second in permutations(CARDS, 2) for seat in (0, 1)]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        first, second, seat = (options or {}).get("task_id") or self.np_random.choice(self.task_ids("train"))
        self.cards, self.history = first + second, ""
        self.own = None if (options or {}).get("seats") else int(seat)  # None: a policy plays both seats
        self.others_move()
        return self.observation(), self.info()

    def step(self, action):
        moves = MOVES[self.history.endswith("b")]
        said = [word for word in re.findall(r"[a-z]+", action.lower()) if word in moves]
        self.history += "b" if said and said[-1] == moves[1] else "p"  # an answer without a move passes
        self.others_move()
        info = {**self.info(), "valid": bool(said)}
        if self.history not in ENDS:
            return self.observation(), 0.0, False, False, info
        chips = float(first_players_chips(self.cards, self.history))
        won = -chips if self.own else chips
        info |= {"rewards": [chips, -chips], "success": won > 0, "metrics": {"first_players_chips": chips}}
        return "The game is over.", won, True, False, info

    def others_move(self):
        while self.own is not None and self.history not in ENDS and len(self.history) % 2 != self.own:
            self.history += "pb"[int(self.np_random.integers(2))]

    def observation(self):
        seat, moves = len(self.history) % 2, MOVES[self.history.endswith("b")]
        rules = RULES.format(place=("first", "second")[seat], card=self.cards[seat]) if len(self.history) < 2 else ""
        return f"{rules}{TOLD[self.history[-1:]]} Answer {moves[0]} or {moves[1]}.".strip()

    def info(self):
        seat = len(self.history) % 2 if self.own is None else self.own
        return {"seat": seat, "anchor": f"{self.cards[seat]} {self.history}"}

    def demonstrate(self, observation, rng: random.Random):
        """A careless player, whom the warm-start model imitates: more chips with higher cards."""
        moves = re.findall(r"(\w+) or (\w+)\.$", observation)[-1]
        card = self.cards[len(self.history) % 2]
        return moves[rng.random() < (CARDS.index(card) + 1) / 4]
