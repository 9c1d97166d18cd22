"""The invented field of the generated libraries: what papers are about, and what it is called by whom.

Every term has two names that share no word. A query uses the first; a paper may use either, so that searching for the
query's own words finds a part of what is relevant, and the citations lead to the rest.
"""

from __future__ import annotations

Term = tuple[str, str]

SUBJECTS: tuple[Term, ...] = (
    ("moss calendars", "bryophyte almanacs"),
    ("harbour acoustics", "quayside soundscapes"),
    ("glacier caves", "ice grottoes"),
    ("lantern beetles", "luminous elytra"),
    ("tidal orchards", "brackish fruit groves"),
    ("windmill gearing", "sail-mill transmissions"),
    ("salt marsh clocks", "saline wetland timekeeping"),
    ("bell metal fatigue", "carillon alloy ageing"),
    ("migrating dunes", "wandering sand ridges"),
    ("root telegraphy", "rhizome signalling"),
    ("paper kiln glazes", "cellulose furnace enamels"),
    ("river ferry scheduling", "waterway crossing timetables"),
    ("owl flight noise", "strigiform wing sound"),
    ("amber inclusions", "fossil resin contents"),
    ("rope bridge sway", "cable footbridge oscillation"),
    ("beehive humidity", "apiary moisture"),
    ("cobblestone drainage", "sett pavement runoff"),
    ("lighthouse optics", "beacon lenses"),
    ("seed vault decay", "germplasm bank losses"),
    ("fog harvesting", "mist collection"),
    ("peat archives", "bog records"),
    ("puppet kinematics", "marionette motion"),
    ("loom pattern codes", "weaving draft notation"),
    ("geyser timing", "hot spring intervals"),
    ("coral gardening", "reef replanting"),
    ("sourdough cultures", "leaven communities"),
    ("star chart errors", "celestial map deviations"),
    ("snowdrift fences", "winter windbreak barriers"),
    ("clay whistle tuning", "ceramic flute pitch"),
    ("meadow corridors", "grassland passages"),
)

METHODS: tuple[Term, ...] = (
    ("kite photography", "tethered aerial imaging"),
    ("thread models", "filament analogues"),
    ("drifting sensors", "free-floating probes"),
    ("ledger mining", "account book extraction"),
    ("pendulum tests", "swing experiments"),
    ("grain counting", "particle tallies"),
    ("folded maps", "origami charts"),
    ("choir listening", "ensemble audition"),
    ("mirror arrays", "reflector grids"),
    ("slow lenses", "long exposure glass"),
    ("dye tracing", "pigment tracking"),
    ("echo ranking", "reverberation ordering"),
    ("stitch graphs", "seam networks"),
    ("lattice games", "grid play"),
    ("ember tomography", "glowing coal sections"),
    ("quill regression", "feather curve fitting"),
    ("nested cohorts", "layered panels"),
    ("shadow timing", "silhouette chronometry"),
    ("wax casts", "paraffin replicas"),
    ("paired walks", "twin transects"),
    ("bubble gauges", "foam meters"),
    ("hinge automata", "pivot machines"),
    ("braided priors", "plaited beliefs"),
    ("tuning forks", "resonant prongs"),
    ("chalk ledgers", "limestone tallying"),
    ("knot invariants", "tangle constants"),
    ("tilt tables", "inclined platforms"),
    ("pollen barcodes", "spore signatures"),
    ("rolling surveys", "continuous questionnaires"),
    ("copper mirrors", "cuprous speculum"),
)

SETTINGS: tuple[Term, ...] = (
    ("in mountain villages", "across highland hamlets"),
    ("under polar night", "during arctic darkness"),
    ("on small islands", "for minor atolls"),
    ("after heavy floods", "following severe inundation"),
    ("in walled towns", "inside fortified settlements"),
    ("along old canals", "beside historic waterways"),
    ("at low cost", "with scarce funding"),
    ("over many decades", "through successive generations"),
    ("with young observers", "using juvenile volunteers"),
    ("in dry basins", "within arid depressions"),
    ("near busy railways", "by crowded train lines"),
    ("without electricity", "absent mains power"),
    ("in temple courtyards", "among shrine precincts"),
    ("at high altitude", "above thin air"),
    ("during market weeks", "throughout trading fairs"),
    ("on sunken meadows", "upon submerged pastures"),
    ("in copper mines", "below ore workings"),
    ("around shallow lakes", "encircling lagoon shores"),
    ("for mobile workshops", "toward travelling ateliers"),
    ("beneath city streets", "underground in capitals"),
)

#: Of the small libraries: a paper's title is two of these words, one of each kind.
SMALL_SUBJECTS: tuple[str, ...] = (
    "moss", "harbour", "glacier", "beetle", "orchard", "windmill", "marsh", "bell",
    "dune", "root", "kiln", "ferry", "owl", "amber", "rope", "beehive",
)  # fmt: skip
SMALL_METHODS: tuple[str, ...] = (
    "kite", "thread", "sensor", "ledger", "pendulum", "grain", "map", "choir",
    "mirror", "lens", "dye", "echo", "stitch", "lattice", "ember", "quill",
)  # fmt: skip
#: Second names of both; which stands for which differs from library to library.
SMALL_JARGON: tuple[str, ...] = (
    "velour", "tansy", "corvid", "oblong", "saffron", "pewter", "juniper", "marzipan",
    "cobalt", "thistle", "walnut", "parsley", "gannet", "topaz", "bramble", "clover",
    "fennel", "garnet", "hickory", "indigo", "linden", "magpie", "nutmeg", "opal",
)  # fmt: skip
