"""The shop as a state machine over pages: search, results, item, description, features, reviews, and done.

A state is small and immutable, so a snapshot is a reference to it. Pages are text fragments, in the order of WebShop's
pages, and the actions that they offer.

Source: WebShop (arXiv 2207.01206), section 3 and table 1. Differences from its code: *Next >* is not offered after the
last result, and a search is possible on the search page alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from rl_agents.envs.webshop.records import Goal, Product
from rl_agents.envs.webshop.reward import Score, score_purchase
from rl_agents.envs.webshop.store import Hit, Store

PAGE_SIZE = 10
MAX_ACTION = 2000

SEARCH, RESULTS, ITEM, DONE = "search", "results", "item", "done"
DETAILS = ("Description", "Features", "Reviews")
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
#: Another name of ``< Prev`` on the pages below an item.
BACK_TO_ITEM = "Back to Item"
SEARCH_ACTION = "search[<your query>]"

#: Problems of an action.
NOT_AN_ACTION, NO_SEARCH_BAR, EMPTY_QUERY, NOT_ON_PAGE = "not-an-action", "no-search-bar", "empty-query", "not-on-page"
RATING = "Rating: N.A."  # the published data has no ratings
NO_REVIEWS = "No reviews."


@dataclass(frozen=True, slots=True)
class State:
    """The place of a session.

    Attributes:
        page: ``search``, ``results``, ``item``, one of the details (``Description``, ...), or ``done``.
        number: page of the results, from 1.
        chosen: (axis, value) of the chosen options, in the order of choice.
    """

    page: str = SEARCH
    query: str = ""
    number: int = 1
    asin: str = ""
    chosen: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page.

    Attributes:
        texts: visible fragments, including buttons, without the instruction.
        actions: that are possible: ``search[<your query>]`` or ``click[...]``.
        items: products that a results page lists.
        product: of an item page.
    """

    kind: str
    texts: tuple[str, ...]
    actions: tuple[str, ...]
    items: tuple[Hit, ...] = ()
    product: Product | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """The result of an action: why nothing happened (one of this module's words), and the score of a purchase."""

    state: State
    problem: str = ""
    score: Score | None = None


def view(store: Store, state: State) -> Page:
    if state.page == SEARCH:
        return Page(SEARCH, ("Search",), (SEARCH_ACTION,))
    if state.page == DONE:
        return Page(DONE, ("Thank you for shopping with us!",), ())
    if state.page == RESULTS:
        return _results_page(store, state)
    product = _product(store, state)
    if state.page == ITEM:
        return _item_page(product)
    details = {"Description": (product.description,), "Features": product.bullets, "Reviews": (NO_REVIEWS,)}
    fragments = [text for text in details[state.page] if text]
    return Page(state.page, (BACK, PREVIOUS, *fragments), _clicks(BACK, PREVIOUS))


def act(store: Store, goal: Goal, state: State, command: str) -> Move:
    name, argument = split_command(command)
    if not name or state.page == DONE:
        return Move(state, NOT_AN_ACTION)
    if name == "search":
        if state.page != SEARCH:
            return Move(state, NO_SEARCH_BAR)
        return Move(State(RESULTS, argument)) if argument else Move(state, EMPTY_QUERY)
    target = argument.casefold()
    if state.page == RESULTS:
        return _act_on_results(store, state, target)
    if state.page in (ITEM, *DETAILS):
        return _act_on_item(store, goal, state, target)
    return Move(state, NOT_ON_PAGE)


def split_command(command: str) -> tuple[str, str]:
    """Return ``("search", "red shoes")`` for ``search[red shoes]``; two empty texts if it is no command.

    The argument ends at the last bracket; its white space is normalized.
    """
    command = command.strip()[:MAX_ACTION]
    name, bracket, rest = command.partition("[")
    name = name.strip().casefold()
    if not bracket or not rest.endswith("]") or name not in ("search", "click"):
        return "", ""
    return name, " ".join(rest[:-1].split())


def _act_on_results(store: Store, state: State, target: str) -> Move:
    hits = store.search(state.query)
    if target == BACK.casefold():
        return Move(State())
    if target == PREVIOUS.casefold() and state.number > 1:
        return Move(replace(state, number=state.number - 1))
    if target == NEXT.casefold() and state.number * PAGE_SIZE < len(hits):
        return Move(replace(state, number=state.number + 1))
    for hit in _shown(hits, state.number):
        if target == hit.asin.casefold():
            return Move(replace(state, page=ITEM, asin=hit.asin, chosen=()))
    return Move(state, NOT_ON_PAGE)


def _act_on_item(store: Store, goal: Goal, state: State, target: str) -> Move:
    product = _product(store, state)
    if target == BACK.casefold():
        return Move(State())
    if state.page != ITEM:
        above = target in (PREVIOUS.casefold(), BACK_TO_ITEM.casefold())
        return Move(replace(state, page=ITEM)) if above else Move(state, NOT_ON_PAGE)
    if target == PREVIOUS.casefold():
        return Move(replace(state, page=RESULTS, asin="", chosen=()))
    if target == BUY.casefold():
        return Move(replace(state, page=DONE), score=score_purchase(product, dict(state.chosen), goal))
    for detail in DETAILS:
        if target == detail.casefold():
            return Move(replace(state, page=detail))
    for axis, values in reversed(list(product.options.items())):
        for value in values:
            if target == _clean(value).casefold():
                others = tuple(pair for pair in state.chosen if pair[0] != axis)
                return Move(replace(state, chosen=(*others, (axis, value))))
    return Move(state, NOT_ON_PAGE)


def _results_page(store: Store, state: State) -> Page:
    hits = store.search(state.query)
    shown = _shown(hits, state.number)
    buttons = [BACK]
    if state.number > 1:
        buttons.append(PREVIOUS)
    if state.number * PAGE_SIZE < len(hits):
        buttons.append(NEXT)
    heading = f"Page {state.number} (Total results: {len(hits)})"
    listed = (text for hit in shown for text in (hit.asin, hit.title, hit.price_tag))
    actions = _clicks(*buttons, *(hit.asin for hit in shown))
    return Page(RESULTS, (BACK, heading, *buttons[1:], *listed), actions, items=shown)


def _item_page(product: Product) -> Page:
    options = {axis: tuple(map(_clean, values)) for axis, values in product.options.items()}
    listed = (text for axis, values in options.items() for text in (axis, *values))
    texts = (BACK, PREVIOUS, *listed, product.title, f"Price: {product.price_tag}", RATING, *DETAILS, BUY)
    actions = _clicks(BACK, PREVIOUS, *DETAILS, BUY, *itertools.chain(*options.values()))
    return Page(ITEM, texts, actions, product=replace(product, options=options))


def _product(store: Store, state: State) -> Product:
    product = store.product(state.asin)
    if product is None:
        raise ValueError("state.asin is not in the store")
    return product


def _shown(hits: tuple[Hit, ...], number: int) -> tuple[Hit, ...]:
    return hits[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]


def _clicks(*targets: str) -> tuple[str, ...]:
    """Return the clicks in lower case, as WebShop lists them, each once."""
    return tuple(dict.fromkeys(f"click[{target.lower()}]" for target in targets))


def _clean(value: str) -> str:
    return " ".join(value.split())
