"""A small game of our own that uses what ALFWorld's domain does not: subtypes, quantified and conditional effects,
universal preconditions, equality, constants, queries over subtypes, odd texts."""

import json
from pathlib import Path

DOMAIN = """
; a painter in a house
(define (domain painter)
  (:requirements :adl :typing)
  (:types agent room thing - object
          tool brush - thing)       ; a brush is a thing, too
  (:constants hall_bar_0 - room)
  (:predicates
    (at ?a - agent ?r - room) (in ?x - thing ?r - room) (holds ?a - agent ?x - thing)
    (painted ?x - thing) (wet ?r - room) (lit ?r - room) (adjacent ?r1 ?r2 - room) (seen ?x - object) (done))
  (:action go
    :parameters (?a - agent ?src ?dst - room)
    :precondition (and (at ?a ?src) (not (= ?src ?dst)) (or (adjacent ?src ?dst) (adjacent ?dst ?src)))
    :effect (and (at ?a ?dst) (not (at ?a ?src))))
  (:action take
    :parameters (?a - agent ?x - thing ?r - room)
    :precondition (and (at ?a ?r) (in ?x ?r) (not (exists (?y - thing) (holds ?a ?y))))
    :effect (and (holds ?a ?x) (not (in ?x ?r))))
  (:action drop
    :parameters (?a - agent ?x - thing ?r - room)
    :precondition (and (at ?a ?r) (holds ?a ?x))
    :effect (and (in ?x ?r) (not (holds ?a ?x))))
  (:action paint
    :parameters (?a - agent ?b - brush ?r - room)
    :precondition (and (at ?a ?r) (holds ?a ?b) (exists (?x - tool) (in ?x ?r)))
    :effect (and (wet ?r) (forall (?x - thing) (when (in ?x ?r) (painted ?x)))))
  (:action switch
    :parameters (?a - agent ?r - room)
    :precondition (at ?a ?r)
    :effect (and (when (lit ?r) (not (lit ?r))) (when (not (lit ?r)) (lit ?r))))
  (:action admire
    :parameters (?a - agent ?r - room)
    :precondition (and (at ?a ?r) (forall (?x - thing) (imply (in ?x ?r) (painted ?x))) (lit ?r))
    :effect (done))
  (:action redo
    :parameters (?a - agent ?r - room)
    :precondition (and (at ?a ?r) (done))
    :effect (and (done)))
  (:action rest
    :parameters (?a - agent)
    :precondition (and (at ?a hall_bar_0) (not (done)))
    :effect (seen ?a))
  (:action nothing
    :parameters (?a - agent)
    :precondition (at ?a hall_bar_0)
    :effect (and))
  (:action look
    :parameters (?a - agent ?r - room)
    :precondition (at ?a ?r)
    :effect (seen ?r))
)
"""

PROBLEM = """
(define (problem house) (:domain painter)
  (:objects
    Ann_bar_1 - agent
    kitchen_bar_1 kitchen_bar_2 cellar_bar_1 - room
    Ladder_bar_1 - tool  Brush_bar_1 Brush_bar_2 Brush_bar_3 - brush  basin_bar_1 Stone - thing)
  (:init
    (at ann_bar_1 hall_bar_0) (lit hall_bar_0) (not (wet hall_bar_0))
    (adjacent hall_bar_0 kitchen_bar_1) (adjacent kitchen_bar_2 hall_bar_0) (adjacent kitchen_bar_1 cellar_bar_1)
    (in Ladder_bar_1 hall_bar_0) (in Brush_bar_1 hall_bar_0) (in Brush_bar_2 hall_bar_0) (in Stone hall_bar_0)
    (in basin_bar_1 kitchen_bar_1) (in Brush_bar_3 kitchen_bar_2))
  (:goal (and (done) (forall (?x - thing) (or (painted ?x) (not (in ?x hall_bar_0))))
              (not (exists (?x ?y - brush) (and (not (= ?x ?y)) (in ?x hall_bar_0) (in ?y hall_bar_0)))))))
"""

_HERE = "at(a:agent, r:room)"
_PRODUCTIONS = {
    "intro": [{"rhs": " \n// not shown\n#house#\n\n#task#"}],
    "task": [{"rhs": 'Your task is to: paint "everything"; and rest.'}],
    "house": [{"rhs": "Rooms: [{#room(r)# | adjacent(r:room, s:room)}]. {r.name | wet(r:room)}"}],
    "room(r)": [{"rhs": "{r.indefinite} {r.name or r.id}"}],
    "here": [
        {"condition": f"{_HERE} & in(x:tool, r:room)", "rhs": "By the ladder#things#"},
        {
            "condition": f"{_HERE} & !in(x:thing, r:room)",
            "rhs": "Something left: {x.name | !in(x:thing, r:room)}#things#",
        },
        {"rhs": "Here#things#"},
    ],
    "things": [
        {"rhs": ", you see\t[{'the ' + x.name + ' (' + x.type + ')' | in(x:thing, r:room)}].\n\tIt is #light#."}
    ],
    "light": [{"condition": "done()", "rhs": "finished"}, {"rhs": "not\nfinished"}],
    "held": [{"rhs": "You have [{y.name | holds(a:agent, y:thing)}] #here#\t\t<unread>"}],
    "list_empty": [{"rhs": "nothing"}],
    "list_separator": [{"rhs": "#comma#"}],
    "list_last_separator": [{"rhs": "#comma#\tand #comma#"}],
    "comma": [{"rhs": ", "}],
}

GRAMMAR = (
    '# comment\ngrammar :: """\n' + json.dumps(_PRODUCTIONS, indent=1) + '\n""";\n'
    """
action go { template :: "go from {src} to {dst}"; feedback :: "#moved#";
  grammar :: \"\"\"
    # a comment inside
    {"moved": [{"rhs": "You go to {dst.name}. In it: [{x.name | in(x:thing, dst:room)}]."}]}
  \"\"\"; }
action take { template :: "take {x}"; feedback :: "#held#"; }
action drop { template :: "drop [{x.name | in(x:thing, r:room)}{x}]"; feedback :: "#held#"; }
action paint { feedback :: "Painted with {b.definite} {b.name}. #here#"; template :: "paint with {b} in {r}"; }
action switch { template :: "switch"; feedback :: "Click."; }
action admire { template :: "admire"; feedback :: "#here#"; }
action redo { template :: "redo"; feedback :: "#here#"; }
action rest { template :: "rest"; feedback :: ""; }
action nothing { template :: "nothing"; feedback :: "nothing"; }
action look { template :: "look"; feedback :: "#here#"; }
action unused { template :: "unused"; feedback :: "#nowhere#"; }
"""
)


def write_small_game(folder: Path, **changes: object) -> Path:
    """Write the game with some keys changed."""
    data = {"pddl_domain": DOMAIN, "grammar": GRAMMAR, "pddl_problem": PROBLEM, "solvable": None, "walkthrough": None}
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps({**data, **changes}))
    return path
