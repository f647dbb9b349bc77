"""Places, towns and the positions in a room.

A line reads `noun | kinds | English at, to | German at, to +case`.
"""

from functools import cache

from nouns import names
from words import Place, parse_noun, rows

TABLE = """
park | Park m Parks =Parks | green | in to | in in+acc
garden | Garten m Gärten | green home | in into | in in+acc
kitchen | Küche f Küchen | room | in into | in in+acc
bathroom | Badezimmer n Badezimmer | room | in into | in in+acc
bedroom | Schlafzimmer n Schlafzimmer | room | in into | in in+acc
living room | Wohnzimmer n Wohnzimmer | room | in into | in in+acc
cellar | Keller m Keller | room | in into | in in+acc
garage | Garage f Garagen | room | in into | in in+acc
hall | Flur m Flure | room | in into | in in+acc
classroom | Klassenzimmer n Klassenzimmer | room | in into | in in+acc
office | Büro n Büros | work | in to | in in+acc
school | Schule f Schulen | work | at to | in in+acc
university | Universität f Universitäten | work | at to | an an+acc
hospital | Krankenhaus n Krankenhäuser | work | in to | in in+acc
library | Bibliothek f Bibliotheken | work town | in to | in in+acc
museum | Museum n Museen =Museums | town | in to | in in+acc
theatre | Theater n Theater | town | in to | in in+acc
cinema | Kino n Kinos | town | in to | in in+acc
restaurant | Restaurant n Restaurants =Restaurants | town eat | in to | in in+acc
café | Café n Cafés | town eat | in to | in in+acc
hotel | Hotel n Hotels =Hotels | work town eat | in to | in in+acc
supermarket | Supermarkt m Supermärkte =Supermarkts | shop work | in to | in in+acc
bakery | Bäckerei f Bäckereien | shop work | in to | in in+acc
bookshop | Buchhandlung f Buchhandlungen | shop work | in to | in in+acc
pharmacy | Apotheke f Apotheken | shop work | in to | in in+acc
market | Markt m Märkte | shop | at to | auf auf+acc
station | Bahnhof m Bahnhöfe =Bahnhofs | stop | at to | an zu+dat
airport | Flughafen m Flughäfen | stop work | at to | an zu+dat
bus stop | Bushaltestelle f Bushaltestellen | stop | at to | an zu+dat
harbour | Hafen m Häfen | stop | at to | an zu+dat
town hall | Rathaus n Rathäuser | town | at to | an zu+dat
factory | Fabrik f Fabriken | work | in to | in in+acc
village | Dorf n Dörfer | live | in to | in in+acc
city | Stadt f Städte | live | in to | in in+acc
street | Straße f Straßen | outdoors | in into | in in+acc
forest | Wald m Wälder | green | in into | in in+acc
zoo | Zoo m Zoos | zoo | at to | in in+acc
church | Kirche f Kirchen | town | in to | in in+acc
lake | See m Seen =Sees | water | at to | an an+acc
river | Fluss m Flüsse | water | at to | an an+acc
beach | Strand m Strände | water | at to | an an+acc
swimming pool | Schwimmbad n Schwimmbäder =Schwimmbads | pool | at to | in in+acc
"""


def parse_place(line: str) -> Place:
    """Read one line of the table."""
    english, german, kinds, preposition, german_preposition = line.split(" | ")
    noun = parse_noun(f"{english} | {german} | place {kinds}")
    at, to = preposition.split()
    german_at, german_to = german_preposition.split()
    german_to, case = german_to.split("+")
    return Place(noun, at, to, german_at, german_to, case)


PLACES: tuple[Place, ...] = tuple(parse_place(row) for row in rows(TABLE))

# Towns and countries take no article; both languages use one preposition each.
TOWNS = (
    ("Berlin", "Berlin"),
    ("Hamburg", "Hamburg"),
    ("Munich", "München"),
    ("Cologne", "Köln"),
    ("Vienna", "Wien"),
    ("Zurich", "Zürich"),
    ("Paris", "Paris"),
    ("London", "London"),
    ("Rome", "Rom"),
    ("Germany", "Deutschland"),
    ("Austria", "Österreich"),
    ("France", "Frankreich"),
    ("Italy", "Italien"),
    ("Spain", "Spanien"),
)

# Two-way prepositions: the dative answers "where", the accusative "where to".
POSITIONS: tuple[tuple[str, str, str], ...] = (
    ("on", "auf", "surface"),
    ("under", "unter", "shelter"),
    ("in", "in", "store"),
    ("next to", "neben", "furniture"),
    ("behind", "hinter", "furniture"),
    ("in front of", "vor", "furniture"),
)


@cache
def of_kinds(*kinds: str) -> tuple[Place, ...]:
    """The places that belong to at least one of the kinds."""
    return tuple(place for place in PLACES if any(kind in names(place.noun) for kind in kinds))
