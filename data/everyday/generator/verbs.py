"""The verbs: `English | German | frame | subjects | objects | marks`.

English: base [past participle]; `a+b` has a loose particle, `a_b` a fixed one.
German: `prefix+infinitive [third-singular preterite participle]`, `*` before it for the
auxiliary sein. Frames: none, acc, dat, give (dative and accusative), or a preposition with
its case. Marks: `state` (no progressive), `preterite` (simple past also when spoken),
`past_only` (no present), `unwilled` (nobody plans or orders it), `to` (recipient with "to"),
`reflexive`, `reflexive_dat`, `weather`.
"""

from words import Verb, rows

INTRANSITIVE = """
sleep slept slept | schlafen schläft schlief geschlafen | none | person pet | |
work | arbeiten | none | adult | |
laugh | lachen | none | person | |
cry | weinen | none | person baby | | unwilled
smile | lächeln | none | person | |
dance | tanzen | none | person | |
sing sang sung | singen singt sang gesungen | none | person | |
swim swam swum | *schwimmen schwimmt schwamm geschwommen | none | person | |
hike | *wandern | none | adult | |
cough | husten | none | person | | unwilled
get_up got got | *auf+stehen steht stand gestanden | none | person | |
wake_up woke woken | *auf+wachen | none | person | | unwilled
fall_asleep fell fallen | *ein+schlafen schläft schlief geschlafen | none | person | | unwilled
go_shopping went gone | ein+kaufen | none | adult | |
watch_television | fern+sehen sieht sah gesehen | none | person | |
go_for_a_walk went gone | *spazieren_+gehen geht ging gegangen | none | person | |
have_breakfast had had | frühstücken | none | person | |
tidy_up | auf+räumen | none | person | |
rest | aus+ruhen | none | person | | reflexive
hurry | beeilen | none | person | | reflexive
have_a_shower had had | duschen | none | person | |
bark | bellen | none | dog | |
arrive | *an+kommen kommt kam gekommen | none | person public airborne | | unwilled
depart | *ab+fahren fährt fuhr gefahren | none | public | |
land | *landen | none | airborne | |
take_off took taken | *starten | none | airborne | |
"""

TRANSITIVE = """
eat ate eaten | essen isst aß gegessen | acc | person | food |
drink drank drunk | trinken trinkt trank getrunken | acc | person | drink |
cook | kochen | acc | person | meal |
bake | backen backt backte gebacken | acc | person | baked |
cut cut cut | schneiden schneidet schnitt geschnitten | acc | person | vegetable fruit |
peel | schälen | acc | person | fruit vegetable |
try | probieren | acc | person | food |
order | bestellen | acc | adult | meal drink |
buy bought bought | kaufen | acc | adult | ware book newspaper magazine clothing dress pair toy
  dish device owned_vehicle furniture gift |
sell sold sold | verkaufen | acc | adult | owned_vehicle furniture jewel dwelling device |
read read read | lesen liest las gelesen | acc | person | readable |
write wrote written | schreiben schreibt schrieb geschrieben | acc | person | writable |
translate | übersetzen übersetzt übersetzte übersetzt | acc | adult | readable |
draw drew drawn | zeichnen | acc | person | animal paintable tree structure map |
paint | streichen streicht strich gestrichen | acc | adult | paintwork opening |
repair | reparieren | acc | adult | device vehicle repairable furniture opening |
wash | waschen wäscht wusch gewaschen | acc | person | clothing dress washable owned_vehicle |
clean | putzen | acc | person | opening room boot shoe |
dry | ab+trocknen | acc | person | dish cutlery |
wear wore worn | tragen trägt trug getragen | acc | person | clothing | state
put+on put put | an+ziehen zieht zog gezogen | acc | person | outer pair |
take+off took taken | aus+ziehen zieht zog gezogen | acc | person | outer pair |
open | öffnen | acc | person | opening openable |
close | schließen schließt schloss geschlossen | acc | person | opening store |
turn+on | ein+schalten | acc | person | switchable |
turn+off | aus+schalten | acc | person | switchable |
look_for | suchen | acc | person | losable tool pet |
find found found | finden findet fand gefunden | acc | person | losable mistake | past_only unwilled
lose lost lost | verlieren verliert verlor verloren | acc | person | losable | past_only unwilled
forget forgot forgotten | vergessen vergisst vergaß vergessen | acc | person | losable study outer
  | past_only unwilled
bring+along brought brought | mit+bringen bringt brachte gebracht | acc | person | food gift study |
throw+away threw thrown | weg+werfen wirft warf geworfen | acc | person | pair book newspaper
  magazine dish |
pick+up | ab+holen | acc | adult | person sendable |
call+up | an+rufen ruft rief gerufen | acc | person | person |
invite | ein+laden lädt lud geladen | acc | person | person |
get_to_know got got | kennen+lernen | acc | person | person | past_only
visit | besuchen | acc | person | person town zoo |
meet met met | treffen trifft traf getroffen | acc | person | person |
see saw seen | sehen sieht sah gesehen | acc | person | person animal stranger vehicle | state
hear heard heard | hören | acc | person | person animal song sound | state
know knew known | kennen kennt kannte gekannt | acc | person | person song | state preterite
love | lieben | acc | person | person pet family | state
like | mögen mag mochte gemocht | acc | person | person animal food drink show song readable gift
  place | state preterite
need | brauchen | acc | person | losable tool ware study furniture device | state
have had had | haben hat hatte gehabt | acc | person | owned_vehicle pet device furniture losable
  toy problem question | state preterite
hug hugged hugged | umarmen | acc | person | person |
greet | begrüßen | acc | person | person |
praise | loben | acc | adult | person |
wake+up woke woken | wecken | acc | person | person baby |
comfort | trösten | acc | person | person baby |
miss | vermissen | acc | person | person pet | state
miss | verpassen | acc | person | public show event | past_only unwilled
feed fed fed | füttern | acc | person | pet livestock beast baby |
ride rode ridden | reiten reitet ritt geritten | acc | person | horse |
water | gießen gießt goss gegossen | acc | person | plant |
plant | pflanzen | acc | person | plant vegetable |
pick | pflücken | acc | person | colourful_plant fruit |
watch | an+schauen | acc | person | show | reflexive_dat
learn | lernen | acc | person | subject |
understand understood understood | verstehen versteht verstand verstanden | acc | person | problem
  joke | state
correct | korrigieren | acc | adult | mistake problem report |
solve | lösen | acc | person | problem |
answer | beantworten | acc | person | askable letter message |
pay paid paid | bezahlen | acc | adult | payable |
plan | planen | acc | adult | plan |
prepare | vor+bereiten | acc | adult | plan work_event |
tidy+up | auf+räumen | acc | person | room |
pack | packen | acc | person | suitcase backpack bag |
carry | tragen trägt trug getragen | acc | person | suitcase backpack bag box basket furniture |
borrow | aus+leihen leiht lieh geliehen | acc | person | book novel tool camera bicycle |
collect | sammeln | acc | person | collectable |
build built built | bauen | acc | adult | structure furniture boat |
rent | mieten | acc | adult | dwelling car boat |
paint | malen | acc | person | paintable colourful_plant |
hide hid hidden | verstecken | acc | person | gift collectable |
photograph | fotografieren | acc | person | animal structure plant place |
describe | beschreiben beschreibt beschrieb beschrieben | acc | person | structure animal dwelling
  stranger |
sing sang sung | singen singt sang gesungen | acc | person | song |
tell told told | erzählen | acc | person | tellable |
enjoy | genießen genießt genoss genossen | acc | adult | event_like meal drink |
teach taught taught | unterrichten | acc | teacher | subject |
play | spielen | acc | person | instrument |
"""

DATIVE = """
help | helfen hilft half geholfen | dat | person | person |
thank | danken | dat | person | person |
follow | *folgen | dat | person pet | person |
congratulate | gratulieren | dat | person | person |
trust | vertrauen | dat | person | person | state
listen_to | zu+hören | dat | person | person |
watch | zu+sehen sieht sah gesehen | dat | person | animal |
appeal_to | gefallen gefällt gefiel gefallen | dat | show readable gift clothing song dwelling
  idea | person | state
belong_to | gehören | dat | thing clothing owned_vehicle pet | person | state
fit fitted fitted | passen | dat | clothing dress | person | state
"""

GIVING = """
give gave given | geben gibt gab gegeben | give | person | thing gift drink food |
show showed shown | zeigen | give | person | thing picture gift owned_vehicle |
send sent sent | schicken | give | person | sendable |
bring brought brought | bringen bringt brachte gebracht | give | person | food drink thing |
lend lent lent | leihen leiht lieh geliehen | give | person | owned_vehicle tool study camera
  bicycle |
sell sold sold | verkaufen | give | adult | owned_vehicle furniture jewel |
tell told told | erzählen | give | person | tellable |
explain | erklären | give | adult | problem | to
recommend | empfehlen empfiehlt empfahl empfohlen | give | adult | show readable | to
"""

PREPOSITIONAL = """
wait_for | warten | auf+acc | person | person public |
think_about thought thought | denken denkt dachte gedacht | an+acc | person | family event
  work_event |
look_after | auf+passen | auf+acc | adult | child pet baby |
talk_about | sprechen spricht sprach gesprochen | über+acc | person | show event problem readable |
laugh_about | lachen | über+acc | person | tellable |
dream_of dreamt dreamt | träumen | von+dat | person | dwelling event owned_vehicle | unwilled
talk_to | sprechen spricht sprach gesprochen | mit+dat | person | person |
play_with | spielen | mit+dat | child | pet toy |
begin_with began begun | beginnen beginnt begann begonnen | mit+dat | adult | work_event |
look_forward_to | freuen | auf+acc | person | event show | reflexive
be_interested_in was been | interessieren | für+acc | person | subject animal show idea | state
  reflexive
complain_about | beschweren | über+acc | adult | weather_mass payable | reflexive
be_annoyed_about was been | ärgern | über+acc | person | mistake payable | state reflexive
remember | erinnern | an+acc | person | person event dwelling | state reflexive
get_used_to got got | gewöhnen | an+acc | person | weather_mass rule | past_only unwilled reflexive
"""

PLACED = """
live | wohnen | none | adult | | state
stay | *bleiben bleibt blieb geblieben | none | person | |
sit sat sat | sitzen sitzt saß gesessen | none | person | |
play | spielen | none | child pet | |
read read read | lesen liest las gelesen | none | person | |
lie lay lain | liegen liegt lag gelegen | none | pet | |
go went gone | *gehen geht ging gegangen | none | person | |
run ran run | *laufen läuft lief gelaufen | none | person pet | |
drive drove driven | *fahren fährt fuhr gefahren | none | adult | |
travel travelled travelled | *reisen | none | adult | |
fly flew flown | *fliegen fliegt flog geflogen | none | adult | |
come came come | *kommen kommt kam gekommen | none | person | |
put put put | stellen | acc | person | upright |
put put put | legen | acc | person | flat |
be was been | *sein ist war gewesen | none | person | | state preterite
lie lay lain | liegen liegt lag gelegen | none | flat | | state
stand stood stood | stehen steht stand gestanden | none | upright | | state
rain | regnen | none | | | weather
snow | schneien | none | | | weather
become became become | *werden wird wurde geworden | none | | |
know knew known | wissen weiß wusste gewusst | none | | | state preterite
hope | hoffen | none | | | state
think thought thought | denken denkt dachte gedacht | none | | | state
say said said | sagen | none | | |
believe | glauben | none | | | state
try | versuchen | none | | |
forget forgot forgotten | vergessen vergisst vergaß vergessen | none | | |
begin began begun | beginnen beginnt begann begonnen | none | | |
decide | beschließen beschließt beschloss beschlossen | none | | |
promise | versprechen verspricht versprach versprochen | none | | |
plan | planen | none | | |
ask | fragen | none | | |
"""

INSEPARABLE = ("be", "ver", "er", "ent", "emp", "zer", "ge", "über", "unter", "um", "wieder")


def english_regular(base: str) -> str:
    """The regular past tense: walk walked, try tried, plan planned."""
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + ("ped" if base == "stop" else "ned" if base == "plan" else "ed")


def german_regular(infinitive: str) -> tuple[str, str, str]:
    """Third person, preterite and participle of a weak verb without its prefix."""
    stem = infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]
    hard = stem.endswith(("t", "d", "chn", "ffn", "tm", "gn", "ckn"))
    link = "e" if hard else ""
    bare = infinitive.endswith("ieren") or (
        infinitive.startswith(INSEPARABLE) and infinitive not in ("bellen",)
    )
    participle = ("" if bare else "ge") + stem + link + "t"
    return stem + link + "t", stem + link + "te", participle


def parse_verb(line: str) -> Verb:
    """Read one line of a table."""
    english, german, frame, subjects, objects, marks = (p.strip() for p in line.split("|"))
    base, *parts = english.split()
    head, _, particle = base.replace("+", "_").partition("_")
    past, participle = parts or (english_regular(head), english_regular(head))
    forms, *strong = german.lstrip("*").split()
    prefix, _, infinitive = forms.rpartition("+")
    third, preterite, german_participle = strong or german_regular(infinitive)
    preposition, _, case = frame.partition("+")
    return Verb(
        head,
        particle.replace("_", " "),
        "+" in base,
        past,
        participle,
        infinitive,
        prefix.replace("_", " "),
        third,
        preterite,
        german_participle,
        "sein" if german.startswith("*") else "haben",
        "prep" if case else frame,
        tuple(subjects.split()),
        tuple(objects.split()),
        tuple(marks.split()),
        preposition if case else "",
        case or ("dat" if frame == "dat" else "acc"),
    )


def parse_table(table: str) -> tuple[Verb, ...]:
    """The verbs of one table."""
    return tuple(parse_verb(row) for row in rows(table))


PLAIN = parse_table(INTRANSITIVE)
ACCUSATIVE = parse_table(TRANSITIVE)
WITH_DATIVE = parse_table(DATIVE)
DITRANSITIVE = parse_table(GIVING)
WITH_PREPOSITION = parse_table(PREPOSITIONAL)
SPECIAL = parse_table(PLACED)
ALL = PLAIN + ACCUSATIVE + WITH_DATIVE + DITRANSITIVE + WITH_PREPOSITION + SPECIAL


def special(english: str, german: str) -> Verb:
    """The verb of the special table with this English base and German infinitive."""
    return next(v for v in SPECIAL if (v.english, v.german) == (english, german))


def named(lemma: str) -> Verb:
    """The first verb with this English base and particle."""
    return next(verb for verb in ALL if verb.lemma == lemma)
