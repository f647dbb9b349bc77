"""Adjectives, adverbs, names, numbers and times.

An adjective reads `English [comparative superlative|-] | German [comparative
superlative|-] | kinds`; `-` marks one that is not compared.
"""

from words import VOWELS, Adjective, rows

ADJECTIVES_TABLE = """
old | alt älter ältest | person pet thing furniture vehicle owned_vehicle clothing dress device
  town dwelling tree readable structure
young | jung jünger jüngst | adult animal
new | neu neuer neuest | thing furniture device vehicle owned_vehicle clothing dress pair shop
  dwelling readable idea friend show instrument
big | groß größer größt | animal fruit vegetable thing furniture dwelling place vehicle
  owned_vehicle plant structure baked
small | klein kleiner kleinst | animal fruit thing furniture dwelling place owned_vehicle plant
  baked child
tired | müde - | person pet
happy | glücklich glücklicher glücklichst | person
sad | traurig trauriger traurigst | person show song tellable
ill | krank - | pet
healthy | gesund gesünder gesündest | pet fruit vegetable
friendly | freundlich freundlicher freundlichst | person pet
polite | höflich höflicher höflichst | person
lazy | faul fauler faulst | person pet
hard-working | fleißig fleißiger fleißigst | person
clever | klug klüger klügst | person pet beast
stupid | dumm dümmer dümmst | question mistake joke idea
rich | reich reicher reichst | adult
poor | arm ärmer ärmst | adult
famous | berühmt berühmter berühmtest | worker museum theatre hotel city bridge tower show novel
hungry | hungrig hungriger hungrigst | person animal
thirsty | durstig durstiger durstigst | person pet
curious | neugierig neugieriger neugierigst | person pet
nervous | nervös nervöser nervösest | person
brave | mutig mutiger mutigst | person dog
careful | vorsichtig vorsichtiger vorsichtigst | person
patient | geduldig geduldiger geduldigst | person
angry | wütend wütender wütendst | person
honest | ehrlich ehrlicher ehrlichst | person
funny | lustig lustiger lustigst | person show tellable song readable
strong | stark stärker stärkst | person horse bear lion donkey hot_drink
kind | nett netter nettest | person
loyal | treu treuer treuest | dog horse friend
wild | wild wilder wildest | beast horse
dangerous | gefährlich gefährlicher gefährlichst | beast journey
lively | lebhaft lebhafter lebhaftest | pet child
cute | niedlich niedlicher niedlichst | pet baby
fat | dick dicker dickst | cat pig hen rabbit hamster
fast | schnell schneller schnellst | transport vehicle horse computer
slow | langsam langsamer langsamst | public transport computer
modern | modern moderner modernst | dwelling device town shop work furniture
beautiful | schön schöner schönst | dress jewel plant song jewel vase picture place town green
  water village
ugly | hässlich hässlicher hässlichst | furniture dress clothing picture vase carpet
expensive | teuer teurer teuerst | meat fish wine cheese gift device owned_vehicle furniture
  dwelling clothing dress pair shop eat jewel
cheap | billig billiger billigst | wine gift device owned_vehicle furniture clothing dress pair eat
heavy | schwer schwerer schwerst | suitcase bag backpack box basket bucket furniture parcel
broken | kaputt - | device tool toy dish furniture owned_vehicle opening umbrella mirror
clean | sauber sauberer sauberst | clothing dress washable dish room cutlery
dirty | schmutzig schmutziger schmutzigst | clothing dress washable dish pair room opening vehicle
empty | leer - | container dish drawer cupboard room
full | voll - | container drawer
sharp | scharf schärfer schärfst | knife saw
round | rund - | table mirror box plate carpet
comfortable | bequem bequemer bequemst | seat armchair bed pair
warm | warm wärmer wärmst | clothing pair blanket room meal
hot | heiß heißer heißest | hot_drink meal
cold | kalt kälter kältest | drink meal room
thick | dick dicker dickst | book novel dictionary blanket outer carpet
thin | dünn dünner dünnst | book notebook blanket
long | lang länger längst | letter story event show dress rope scarf report bridge journey street
  curtain
short | kurz kürzer kürzest | letter story event show message dress poem
interesting | interessant interessanter interessantest | show readable event_like problem idea
  museum city
boring | langweilig langweiliger langweiligst | show readable event work_event
exciting | spannend spannender spannendst | show story novel game
important | wichtig wichtiger wichtigst | work_event message letter question rule
difficult | schwierig schwieriger schwierigst | problem exam
easy | leicht leichter leichtest | problem exam recipe
fresh | frisch frischer frischest | fruit vegetable baked meat fish egg milk butter juice salad
delicious | lecker leckerer leckerst | food drink
sweet | süß süßer süßest | fruit baked biscuit drink jam
sour | sauer saurer sauerst | apple lemon cherry orange plum milk
ripe | reif reifer reifst | fruit tomato
good | gut besser best | show idea readable answer restaurant hotel wine cook
bad | schlecht schlechter schlechtest | idea answer report show
strict | streng strenger strengst | teacher boss judge father mother
loud | laut lauter lautest | music city street dog device child
quiet | ruhig ruhiger ruhigst | street village forest person
wet | nass - | clothing pair washable dog umbrella
dry | trocken trockener trockenst | washable clothing
red | rot - | colourful colourful_plant opening
blue | blau - | colourful opening
green | grün - | colourful opening
yellow | gelb - | colourful colourful_plant
white | weiß - | colourful colourful_plant cat horse rabbit opening
black | schwarz - | colourful cat dog horse
brown | braun - | pair furniture horse dog clothing
grey | grau - | clothing cat mouse donkey
high | hoch höher höchst | tree tower wall fence roof payable
narrow | schmal schmaler schmalst | street bench bed bridge
wide | breit breiter breitest | street river bed bridge
"""

ENGLISH_IRREGULAR = {"good": ("better", "best"), "bad": ("worse", "worst")}
LONG = "famous nervous careful patient honest curious dangerous modern beautiful expensive"
LONG += " comfortable interesting boring exciting important difficult delicious hard-working loyal"
LONG_ADJECTIVES = tuple(LONG.split())


def english_degrees(word: str) -> tuple[str, str]:
    """Comparative and superlative: older oldest, bigger biggest, more famous most famous."""
    if word in ENGLISH_IRREGULAR:
        return ENGLISH_IRREGULAR[word]
    if word in LONG_ADJECTIVES:
        return f"more {word}", f"most {word}"
    if word.endswith("e"):
        return word + "r", word + "st"
    if word.endswith("y"):
        return word[:-1] + "ier", word[:-1] + "iest"
    doubled = word[-1] in "bdgnt" and word[-2] in VOWELS and word[-3:-2] not in tuple(VOWELS)
    syllables = "".join("v" if c in VOWELS else " " for c in word).split()
    stem = word + word[-1] if doubled and len(syllables) == 1 else word
    return stem + "er", stem + "est"


def parse_adjective(line: str) -> Adjective:
    """Read one line of the table."""
    english, german, kinds = (part.strip() for part in line.split("|"))
    positive, comparative, *rest = german.split()
    degrees = ("", "") if comparative == "-" else (comparative, rest[0])
    return Adjective(english, english_degrees(english), positive, degrees, tuple(kinds.split()))


ADJECTIVES: tuple[Adjective, ...] = tuple(map(parse_adjective, rows(ADJECTIVES_TABLE)))
ADJECTIVE = {adjective.english: adjective for adjective in ADJECTIVES}
STATES = "tired happy sad ill hungry thirsty curious nervous angry"
CHARACTER = "friendly polite lazy hard-working clever brave careful patient honest funny kind"

MEN = [
    "Paul",
    "Peter",
    "Jonas",
    "Felix",
    "Max",
    "Martin",
    "Stefan",
    "David",
    "Tim",
    "Leon",
    "Jan",
    "Daniel",
    "Michael",
    "Oliver",
]
WOMEN = [
    "Anna",
    "Maria",
    "Julia",
    "Laura",
    "Lena",
    "Sophie",
    "Emma",
    "Clara",
    "Nina",
    "Eva",
    "Lisa",
    "Sarah",
    "Hannah",
    "Katrin",
]
SURNAMES = [
    "Weber",
    "Schneider",
    "Fischer",
    "Wagner",
    "Becker",
    "Hoffmann",
    "Koch",
    "Klein",
    "Neumann",
    "Braun",
]

NUMBERS = (
    ("two", "zwei"),
    ("three", "drei"),
    ("four", "vier"),
    ("five", "fünf"),
    ("six", "sechs"),
    ("seven", "sieben"),
    ("eight", "acht"),
    ("nine", "neun"),
    ("ten", "zehn"),
    ("eleven", "elf"),
    ("twelve", "zwölf"),
)
HOURS = (("one", "eins"), *NUMBERS)
MINUTES = (
    ("five past", "fünf nach"),
    ("ten past", "zehn nach"),
    ("a quarter past", "Viertel nach"),
    ("twenty past", "zwanzig nach"),
    ("twenty to", "zwanzig vor"),
    ("a quarter to", "Viertel vor"),
    ("ten to", "zehn vor"),
    ("five to", "fünf vor"),
)
WEEKDAYS = (
    ("Monday", "Montag"),
    ("Tuesday", "Dienstag"),
    ("Wednesday", "Mittwoch"),
    ("Thursday", "Donnerstag"),
    ("Friday", "Freitag"),
    ("Saturday", "Samstag"),
    ("Sunday", "Sonntag"),
)
MONTHS = (
    ("January", "Januar"),
    ("February", "Februar"),
    ("March", "März"),
    ("April", "April"),
    ("May", "Mai"),
    ("June", "Juni"),
    ("July", "Juli"),
    ("August", "August"),
    ("September", "September"),
    ("October", "Oktober"),
    ("November", "November"),
    ("December", "Dezember"),
)
SEASONS = (
    ("spring", "Frühling"),
    ("summer", "Sommer"),
    ("autumn", "Herbst"),
    ("winter", "Winter"),
)
DAYTIMES = (("morning", "Morgen"), ("afternoon", "Nachmittag"), ("evening", "Abend"))

FREQUENCY = (
    ("always", "immer"),
    ("often", "oft"),
    ("sometimes", "manchmal"),
    ("usually", "meistens"),
    ("rarely", "selten"),
    ("never", "nie"),
)
MANNER = {
    "sleep": (("well", "gut"), ("badly", "schlecht")),
    "work": (("hard", "hart"), ("slowly", "langsam"), ("alone", "allein")),
    "laugh": (("loudly", "laut"),),
    "cry": (("loudly", "laut"), ("quietly", "leise")),
    "sing": (("loudly", "laut"), ("quietly", "leise"), ("beautifully", "schön")),
    "dance": (("well", "gut"), ("badly", "schlecht"), ("alone", "allein")),
    "swim": (("fast", "schnell"), ("slowly", "langsam"), ("well", "gut")),
    "open": (("carefully", "vorsichtig"), ("quietly", "leise")),
    "close": (("quietly", "leise"), ("quickly", "schnell")),
    "repair": (("quickly", "schnell"), ("carefully", "vorsichtig")),
    "learn": (("quickly", "schnell"), ("together", "zusammen")),
    "bark": (("loudly", "laut"),),
}


def clock(hour: int, step: int) -> tuple[str, str]:
    """A time of day: step -1 is the full hour, -2 half past, else an index into MINUTES.

    German counts the half hour towards the next hour: half past seven is "halb acht".
    """
    english, german = HOURS[hour]
    following = HOURS[(hour + 1) % 12]
    if step == -1:
        return f"{english} o'clock", f"{'ein' if german == 'eins' else german} Uhr"
    if step == -2:
        return f"half past {english}", f"halb {following[1]}"
    past, german_past = MINUTES[step]
    towards = following if past.endswith("to") else HOURS[hour]
    return f"{past} {towards[0]}", f"{german_past} {towards[1]}"


def clocks() -> list[tuple[str, str]]:
    """Every time of day that the corpus can tell."""
    return [clock(hour, step) for hour in range(12) for step in range(-2, len(MINUTES))]


def habitual_times() -> list[tuple[str, str]]:
    """Times for what happens again and again."""
    times = [("every day", "jeden Tag"), ("every week", "jede Woche")]
    times += [(f"on {e}s", f"{g.lower()}s") for e, g in WEEKDAYS]
    times += [(f"in the {e}", f"am {g}") for e, g in DAYTIMES]
    times += [(f"every {e}", f"jeden {g}") for e, g in (*DAYTIMES, *SEASONS)]
    times += [(f"in {e}", f"im {g}") for e, g in SEASONS]
    return times


def loose_times() -> list[tuple[str, str]]:
    """Habitual times that still leave room for "often" or "sometimes"."""
    return [row for row in habitual_times() if not row[0].startswith("every")]


def past_times() -> list[tuple[str, str]]:
    """Times that lie behind the speaker."""
    times = [("yesterday", "gestern"), ("last week", "letzte Woche")]
    times += [("last year", "letztes Jahr"), ("an hour ago", "vor einer Stunde")]
    times += [("this morning", "heute Morgen"), ("yesterday evening", "gestern Abend")]
    times += [(f"{e} days ago", f"vor {g} Tagen") for e, g in NUMBERS]
    times += [(f"{e} weeks ago", f"vor {g} Wochen") for e, g in NUMBERS[:5]]
    times += [(f"last {e}", f"letzten {g}") for e, g in (*SEASONS, *WEEKDAYS)]
    return times


def future_times() -> list[tuple[str, str]]:
    """Times that lie ahead of the speaker."""
    times = [("tomorrow", "morgen"), ("next week", "nächste Woche"), ("soon", "bald")]
    times += [("next year", "nächstes Jahr"), ("this evening", "heute Abend")]
    times += [("the day after tomorrow", "übermorgen"), ("tomorrow evening", "morgen Abend")]
    times += [(f"next {e}", f"nächsten {g}") for e, g in (*SEASONS, *WEEKDAYS)]
    times += [(f"in {e} days", f"in {g} Tagen") for e, g in NUMBERS]
    return times


def dated_times() -> list[list[tuple[str, str]]]:
    """Times that fit both what was and what will be: days, parts of days, clocks, months."""
    return [
        [(f"on {e}", f"am {g}") for e, g in WEEKDAYS],
        [(f"on {e} {d}", f"am {g}{h.lower()}") for e, g in WEEKDAYS for d, h in DAYTIMES],
        [(f"at {e}", f"um {g}") for e, g in clocks()],
        [(f"in {e}", f"im {g}") for e, g in MONTHS],
    ]
