"""The nouns: `english[/plural] | German gender plural | kinds`."""

from functools import cache

from words import Noun, parse_noun, rows

PEOPLE = """
man/men | Mann m Männer | person adult he
woman/women | Frau f Frauen | person adult she
boy | Junge m Jungen weak | person child he
girl | Mädchen n Mädchen | person child
child/children | Kind n Kinder | person child
baby | Baby n Babys | baby
father | Vater m Väter | person adult family he
mother | Mutter f Mütter | person adult family she
brother | Bruder m Brüder | person adult family he
sister | Schwester f Schwestern | person adult family she
son | Sohn m Söhne | person adult family he
daughter | Tochter f Töchter | person adult family she
uncle | Onkel m Onkel | person adult family he
aunt | Tante f Tanten | person adult family she
grandfather | Großvater m Großväter | person adult family he
grandmother | Großmutter f Großmütter | person adult family she
cousin | Cousin m Cousins | person adult family he
niece | Nichte f Nichten | person child family she
nephew | Neffe m Neffen weak | person child family he
husband | Ehemann m Ehemänner | person adult owned he
friend | Freund m Freunde | person adult friend he
neighbour | Nachbar m Nachbarn weak | person adult friend he
colleague | Kollege m Kollegen weak | person adult friend he
boss | Chef m Chefs =Chefs | person adult friend he
guest | Gast m Gäste | person adult friend he
teacher | Lehrer m Lehrer | person adult worker friend he
pupil | Schüler m Schüler | person child he
student | Student m Studenten weak | person adult worker he
doctor | Arzt m Ärzte | person adult worker friend he
nurse | Krankenschwester f Krankenschwestern | person adult she
dentist | Zahnarzt m Zahnärzte =Zahnarztes | person adult worker friend he
cook | Koch m Köche | person adult worker he
baker | Bäcker m Bäcker | person adult worker he
butcher | Metzger m Metzger | person adult worker he
waiter | Kellner m Kellner | person adult worker he
farmer | Bauer m Bauern weak | person adult worker he
gardener | Gärtner m Gärtner | person adult worker he
painter | Maler m Maler | person adult worker he
singer | Sänger m Sänger | person adult worker he
actor | Schauspieler m Schauspieler | person adult worker he
writer | Schriftsteller m Schriftsteller | person adult worker he
journalist | Journalist m Journalisten weak | person adult worker he
engineer | Ingenieur m Ingenieure | person adult worker he
lawyer | Anwalt m Anwälte =Anwalts | person adult worker friend he
judge | Richter m Richter | person adult worker he
policeman/policemen | Polizist m Polizisten weak | person adult he
fireman/firemen | Feuerwehrmann m Feuerwehrmänner =Feuerwehrmanns | person adult he
soldier | Soldat m Soldaten weak | person adult worker he
pilot | Pilot m Piloten weak | person adult worker he
driver | Fahrer m Fahrer | person adult worker he
mechanic | Mechaniker m Mechaniker | person adult worker he
hairdresser | Friseur m Friseure | person adult he
salesman/salesmen | Verkäufer m Verkäufer | person adult he
secretary | Sekretärin f Sekretärinnen | person adult she
customer | Kunde m Kunden weak | person adult friend he
tourist | Tourist m Touristen weak | person adult he
thief/thieves | Dieb m Diebe | stranger
queen | Königin f Königinnen | stranger
king | König m Könige =Königs | stranger
"""

ANIMALS = """
dog | Hund m Hunde | animal pet big_pet
cat | Katze f Katzen | animal pet
bird | Vogel m Vögel | animal pet flier
horse | Pferd n Pferde | animal livestock big_pet
cow | Kuh f Kühe | animal livestock
pig | Schwein n Schweine | animal livestock
sheep/sheep | Schaf n Schafe | sheep
goat | Ziege f Ziegen | animal livestock
hen | Huhn n Hühner | animal livestock
duck | Ente f Enten | animal flier
goose/geese | Gans f Gänse | animal flier
rabbit | Kaninchen n Kaninchen | animal pet
hamster | Hamster m Hamster | animal pet
mouse/mice | Maus f Mäuse | animal
donkey | Esel m Esel | animal livestock
monkey | Affe m Affen weak | animal beast
bear | Bär m Bären weak | animal beast
lion | Löwe m Löwen weak | animal beast
elephant | Elefant m Elefanten weak | animal beast
tiger | Tiger m Tiger | animal beast
wolf/wolves | Wolf m Wölfe | animal beast
fox | Fuchs m Füchse | animal beast
turtle | Schildkröte f Schildkröten | animal pet
frog | Frosch m Frösche | animal
"""

FOOD = """
apple | Apfel m Äpfel | food fruit ware
pear | Birne f Birnen | food fruit ware
banana | Banane f Bananen | food fruit ware
orange | Orange f Orangen | food fruit ware
lemon | Zitrone f Zitronen | fruit ware
cherry | Kirsche f Kirschen | food fruit ware
strawberry | Erdbeere f Erdbeeren | food fruit ware
plum | Pflaume f Pflaumen | food fruit ware
peach | Pfirsich m Pfirsiche =Pfirsichs | food fruit ware
tomato/tomatoes | Tomate f Tomaten | food vegetable ware
potato/potatoes | Kartoffel f Kartoffeln | food vegetable meal ware
carrot | Karotte f Karotten | food vegetable meal ware
onion | Zwiebel f Zwiebeln | vegetable ware
cucumber | Gurke f Gurken | food vegetable ware
bean | Bohne f Bohnen | food vegetable meal ware
egg | Ei n Eier =Eis | food meal ware
sausage | Wurst f Würste | food meal ware
cake | Kuchen m Kuchen | food baked ware
roll | Brötchen n Brötchen | food baked ware
biscuit | Keks m Kekse | food baked ware
pizza | Pizza f Pizzas | food meal baked ware
sandwich | Sandwich n Sandwiches =Sandwichs | food ware
pancake | Pfannkuchen m Pfannkuchen | food meal
soup | Suppe f Suppen | food meal
salad | Salat m Salate =Salats | food ware
steak | Steak n Steaks =Steaks | food meal ware
bread | Brot n - | food baked ware
butter | Butter f - | mass_food ware
cheese | Käse m - | food ware
ham | Schinken m - | food ware
meat | Fleisch n - | food meal ware
fish | Fisch m - | food meal ware
rice | Reis m - | food meal ware
chocolate | Schokolade f - | food ware
honey | Honig m - =Honigs | food ware
jam | Marmelade f - | food ware
sugar | Zucker m - | mass_food ware
salt | Salz n - | mass_food ware
flour | Mehl n - | mass_food ware
ice cream | Eis n - | food
fruit | Obst n - | food ware
"""

DRINKS = """
water | Wasser n - | drink
milk | Milch f - | drink ware
coffee | Kaffee m - =Kaffees | drink hot_drink ware
tea | Tee m - =Tees | drink hot_drink ware
juice | Saft m - | drink ware
beer | Bier n - | drink ware
wine | Wein m - | drink ware
lemonade | Limonade f - | drink ware
cocoa | Kakao m - =Kakaos | drink hot_drink ware
"""

READING = """
book | Buch n Bücher | thing readable writable flat gift
newspaper | Zeitung f Zeitungen | thing readable flat
letter | Brief m Briefe | thing readable writable sendable flat
magazine | Zeitschrift f Zeitschriften | thing readable flat
postcard | Postkarte f Postkarten | thing readable writable sendable flat
novel | Roman m Romane =Romans | thing readable writable flat gift
poem | Gedicht n Gedichte =Gedichts | readable writable
fairy tale | Märchen n Märchen | readable tellable
report | Bericht m Berichte =Berichts | readable writable sendable
message | Nachricht f Nachrichten | readable writable sendable
recipe | Rezept n Rezepte =Rezepts | readable sendable
story | Geschichte f Geschichten | readable writable tellable
joke | Witz m Witze | tellable
dictionary | Wörterbuch n Wörterbücher =Wörterbuchs | thing flat gift study
map | Landkarte f Landkarten | thing flat
notebook | Heft n Hefte | thing flat study
"""

THINGS = """
key | Schlüssel m Schlüssel | thing flat losable
bag | Tasche f Taschen | thing container losable colourful upright gift
suitcase | Koffer m Koffer | thing container losable colourful upright
backpack | Rucksack m Rucksäcke =Rucksacks | thing container losable colourful upright gift
basket | Korb m Körbe | thing container upright
box | Kiste f Kisten | thing container upright
umbrella | Regenschirm m Regenschirme =Regenschirms | thing losable colourful gift
wallet | Geldbeutel m Geldbeutel | thing losable flat gift
ticket | Fahrkarte f Fahrkarten | thing losable flat
passport | Pass m Pässe | thing losable flat
pen | Stift m Stifte | thing losable flat study
pencil | Bleistift m Bleistifte =Bleistifts | thing losable flat study
ruler | Lineal n Lineale =Lineals | thing flat study
ball | Ball m Bälle | thing toy losable colourful gift
doll | Puppe f Puppen | thing toy losable gift
kite | Drachen m Drachen | thing toy colourful gift
teddy bear | Teddybär m Teddybären weak | thing toy losable gift
present | Geschenk n Geschenke =Geschenks | thing sendable openable
parcel | Paket n Pakete =Pakets | thing sendable openable
stamp | Briefmarke f Briefmarken | thing collectable flat
coin | Münze f Münzen | thing collectable flat
ring | Ring m Ringe =Rings | thing losable gift jewel
necklace | Halskette f Halsketten | thing losable gift jewel
knife/knives | Messer n Messer | thing tool flat
fork | Gabel f Gabeln | thing flat cutlery
spoon | Löffel m Löffel | thing flat cutlery
hammer | Hammer m Hämmer | thing tool flat
saw | Säge f Sägen | thing tool flat
ladder | Leiter f Leitern | thing tool upright
rope | Seil n Seile | thing tool
bucket | Eimer m Eimer | thing tool container upright
broom | Besen m Besen | thing tool
cup | Tasse f Tassen | thing dish upright colourful
glass | Glas n Gläser | thing dish upright
plate | Teller m Teller | thing dish upright colourful
bowl | Schüssel f Schüsseln | thing dish upright colourful
bottle | Flasche f Flaschen | thing dish upright
pot | Topf m Töpfe | thing dish upright
pan | Pfanne f Pfannen | thing dish upright
vase | Vase f Vasen | thing upright colourful gift
candle | Kerze f Kerzen | thing upright colourful gift
mirror | Spiegel m Spiegel | thing home
picture | Bild n Bilder | thing paintable home gift
clock | Uhr f Uhren | thing device home gift
towel | Handtuch n Handtücher | thing flat colourful washable
blanket | Decke f Decken | thing flat colourful washable
pillow | Kissen n Kissen | thing flat colourful washable
carpet | Teppich m Teppiche =Teppichs | thing home colourful
curtain | Vorhang m Vorhänge =Vorhangs | washable colourful
"""

MACHINES = """
lamp | Lampe f Lampen | thing device upright home switchable
computer | Computer m Computer | thing device upright switchable gift
television | Fernseher m Fernseher | thing device upright switchable
radio | Radio n Radios | thing device upright switchable
telephone | Telefon n Telefone =Telefons | thing device
camera | Kamera f Kameras | thing device losable gift
printer | Drucker m Drucker | thing device upright switchable
fridge | Kühlschrank m Kühlschränke =Kühlschranks | device
washing machine | Waschmaschine f Waschmaschinen | device switchable
dishwasher | Spülmaschine f Spülmaschinen | device switchable
stove | Herd m Herde | device switchable
heater | Heizung f Heizungen | device switchable
car | Auto n Autos | vehicle owned_vehicle colourful transport
bicycle | Fahrrad n Fahrräder =Fahrrads | vehicle owned_vehicle colourful transport
motorbike | Motorrad n Motorräder =Motorrads | vehicle owned_vehicle colourful
bus | Bus m Busse =Busses | vehicle public transport
train | Zug m Züge | public transport
tram | Straßenbahn f Straßenbahnen | public transport
aeroplane | Flugzeug n Flugzeuge =Flugzeugs | airborne
ship | Schiff n Schiffe | public transport
taxi | Taxi n Taxis | public
lorry | Lastwagen m Lastwagen | vehicle
boat | Boot n Boote | vehicle owned_vehicle colourful
"""

CLOTHES = """
coat | Mantel m Mäntel | clothing outer colourful
jacket | Jacke f Jacken | clothing outer colourful
shirt | Hemd n Hemden | clothing outer colourful
dress | Kleid n Kleider | dress colourful washable
skirt | Rock m Röcke | dress colourful washable
hat | Hut m Hüte | clothing losable colourful
cap | Mütze f Mützen | clothing losable colourful
scarf/scarves | Schal m Schals =Schals | clothing losable colourful
jumper | Pullover m Pullover | clothing outer colourful
tie | Krawatte f Krawatten | clothing colourful
belt | Gürtel m Gürtel | clothing
shoe | Schuh m Schuhe =Schuhs | pair losable colourful
boot | Stiefel m Stiefel | pair colourful
sock | Socke f Socken | pair losable colourful
glove | Handschuh m Handschuhe =Handschuhs | pair losable colourful
"""

HOME = """
table | Tisch m Tische =Tisches | furniture surface shelter
desk | Schreibtisch m Schreibtische =Schreibtisches | furniture surface shelter
chair | Stuhl m Stühle | furniture seat shelter
armchair | Sessel m Sessel | furniture colourful
sofa | Sofa n Sofas | furniture seat shelter colourful
bench | Bank f Bänke | furniture seat shelter
bed | Bett n Betten =Bettes | furniture shelter bed
wardrobe | Kleiderschrank m Kleiderschränke =Kleiderschranks | furniture store
cupboard | Schrank m Schränke | furniture store
shelf/shelves | Regal n Regale =Regals | furniture surface
drawer | Schublade f Schubladen | store
door | Tür f Türen | opening
window | Fenster n Fenster | opening
gate | Tor n Tore | opening
wall | Wand f Wände | paintwork
fence | Zaun m Zäune | paintwork
roof | Dach n Dächer | repairable
bridge | Brücke f Brücken | structure
tower | Turm m Türme | structure
flat | Wohnung f Wohnungen | dwelling
house | Haus n Häuser | dwelling structure
flower | Blume f Blumen | plant colourful_plant gift
rose | Rose f Rosen | plant colourful_plant gift
tulip | Tulpe f Tulpen | plant colourful_plant gift
tree | Baum m Bäume | plant tree
bush | Busch m Büsche | plant
"""

CULTURE = """
film | Film m Filme =Films | show event_like
play | Theaterstück n Theaterstücke =Theaterstücks | show event_like
concert | Konzert n Konzerte =Konzerts | event event_like
party | Party f Partys | event plan event_like
wedding | Hochzeit f Hochzeiten | event plan event_like
meeting | Besprechung f Besprechungen | event plan work_event
lesson | Unterrichtsstunde f Unterrichtsstunden | event work_event
journey | Reise f Reisen | event plan event_like
trip | Ausflug m Ausflüge =Ausflugs | event plan event_like
holiday | Urlaub m Urlaube =Urlaubs | event event_like
exam | Prüfung f Prüfungen | event plan work_event
game | Spiel n Spiele =Spiels | event event_like
song | Lied n Lieder | song event_like
question | Frage f Fragen | problem askable
answer | Antwort f Antworten | problem
problem | Problem n Probleme =Problems | problem
exercise | Übung f Übungen | problem
rule | Regel f Regeln | problem
sentence | Satz m Sätze | problem
idea | Idee f Ideen | idea
bill | Rechnung f Rechnungen | payable
rent | Miete f Mieten | payable
mistake | Fehler m Fehler | mistake
rain | Regen m - | weather
storm | Sturm m Stürme =Sturms | weather
wind | Wind m Winde | weather
heat | Hitze f - | weather_mass
cold | Kälte f - | weather_mass
noise | Lärm m - =Lärms | weather_mass
time | Zeit f - | abstract
money | Geld n - | abstract
German | Deutsch n - | subject
English | Englisch n - | subject
French | Französisch n - | subject
Spanish | Spanisch n - | subject
maths | Mathematik f - | subject
music | Musik f - | sound
piano | Klavier n Klaviere =Klaviers | instrument
guitar | Gitarre f Gitarren | instrument
violin | Geige f Geigen | instrument
flute | Flöte f Flöten | instrument
drum | Trommel f Trommeln | instrument
"""

TABLES = (PEOPLE, ANIMALS, FOOD, DRINKS, READING, THINGS, MACHINES, CLOTHES, HOME, CULTURE)
NOUNS: tuple[Noun, ...] = tuple(parse_noun(row) for table in TABLES for row in rows(table))
BY_ENGLISH = {noun.english: noun for noun in NOUNS}


def names(noun: Noun) -> tuple[str, ...]:
    """What a noun answers to in a table: its kinds, and itself."""
    return (*noun.kinds, noun.english.replace(" ", "_"))


@cache
def of_kinds(kinds: tuple[str, ...]) -> tuple[Noun, ...]:
    """The nouns that belong to at least one of the kinds."""
    return tuple(noun for noun in NOUNS if any(kind in names(noun) for kind in kinds))
