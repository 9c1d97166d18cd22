"""Which words of a product title are nouns, without a language model.

WebShop's type reward compares the words that spaCy's ``en_core_web_sm`` tags NOUN or PROPN (``goal.py`` of its public
code; the README has ``en_core_web_lg`` downloaded, which an earlier version loaded). No such model is a Python package
that could be depended on; titles are chains of nouns with few other words, so a list of those others comes close
(docs/environments/webshop.md has what could be compared). The scores of the product that a goal was written for do not
depend on it.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"(?:[A-Za-z]\.){2,}|[^\W_]+(?:['’][^\W_]+)*")
_POSSESSIVE = re.compile(r"['’]s?$")

#: Words of English titles that are not nouns: function words, adjectives, adverbs and verbs.
OTHER_WORDS = frozenset(
    """
    a about above across after against all almost along also am among an and another any anti are around as at
    away be because been before behind being below between both but by can could did do does doing down during
    each easily either enough even ever every extra few for from further get gets go had has have having he her
    here hers him his how i if in inside into is it its itself just less let lets like make makes many may me
    mini more most much must my near no non nor not now of off often on once one only onto or other our out
    outside over own per perfect perfectly plus pre quite really same semi she should since so some such super
    than that the their them then there these they this those three through throughout to together too two ultra
    under until up upon us use used using very via was we were what when where which while who whole why will
    with within without would yet you your able absolute active additional adhesive adjustable adult advanced
    affordable alcoholic american ancient antique artificial athletic authentic automatic available bad bare
    basic beautiful best better big bluetooth breathable brief bright brilliant broad busy casual cheap classic
    clean clear clinical close cold comfortable comfy compact compatible complete contemporary convenient cool
    cordless correct cozy creamy creative cruelty custom cute daily dark decorative deep delicate delicious
    dense different digital dirty disposable double dual durable dry easy eco effective elastic electric
    electrical electronic elegant empty essential everyday exact excellent exclusive external fair fake familiar
    famous fancy fashionable fast favorite female few fine firm first fit fitted flat flexible floral foldable
    folding formal fragrant free fresh friendly full functional funny general gentle genuine giant global good
    graphic great handmade happy hard healthy heavy hidden high holiday horizontal hot huge human hypoallergenic
    ideal improved indoor inflatable initial instant insulated intense internal invisible keto kosher large last
    late latest left light lightweight little live local long loose loud low lower lucky luxurious luxury
    magnetic main major male manual matching mature maximum medical medium mental metallic middle mild military
    minimal minimalist mixed mobile modern moist moisturizing multiple multi musical mutual natural neat
    necessary new next nice noble normal nude occasional official old open optical optional oral ordinary
    organic original outdoor oval oversized pale panoramic personal petite physical plain plaid playful pleasant
    polished popular portable possible powerful practical precise premium pretty previous primary private
    professional proper protective pure quick quiet raw ready real rear rectangular recyclable red reflective
    regular related relaxed reliable removable replaceable retractable retro reusable reversible rich right
    rigid robust romantic rotating rough round royal rugged rustic safe satisfied scented seamless seasonal
    second secure sensitive separate sexy sharp sheer shiny short silent silky similar simple single skinny
    sleek sleeveless slim slip slow small smart smooth soft solid special specific spicy square stable stackable
    stainless standard steady sterile sticky straight strapless strong sturdy stylish subtle suitable superior
    supportive sweet swift synthetic tall temporary thermal thick thin third tight tiny top total tough
    traditional transparent tropical true typical unique universal unisex unscented unsweetened unusual upper
    useful usual various vegan vegetarian velvety versatile vertical vintage virtual visible visual vivid warm
    washable waterproof weak wearable wet white wide wild wireless wonderful wooden worn woven young add adjust
    allow apply assemble bring built buy carry charge check choose cleanse come create cut designed drink eat
    enjoy ensure fits fold give grow hang help helps hold hydrate include included includes including increase
    install keep keeps know last lasting look love made nourish offer open please prevent protect protects
    provide provides pull put reduce relieve remove repair replace restore run save set sit sleep stay stop suit
    take tie try turn wash wear work works beige black blue brown green grey gray pink purple yellow orange
    """.split()  # noqa: SIM905
)


def nouns(title: str) -> list[str]:
    """Return the words of ``title`` that count as nouns, in lower case and order, repetitions included.

    Words in capitals are names whatever the list says (``UL``, ``HD``); numbers never count.

    >>> nouns("Rusticware 921ORB Kitchen and Bath Cabinet Knob")
    ['rusticware', '921orb', 'kitchen', 'bath', 'cabinet', 'knob']
    """
    words = [_POSSESSIVE.sub("", token) for token in _TOKEN.findall(title)]
    return [word.lower() for word in words if _counts(word)]


def _counts(word: str) -> bool:
    if not any(letter.isalpha() for letter in word) or re.fullmatch(r"\d+[a-z]{0,3}", word):
        return False
    return len(word) > 1 and word.lower() not in OTHER_WORDS
