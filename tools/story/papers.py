"""Everything in the town that is not a tale: logs, accounts, letters, recipes, riddles, verse and so on."""
from .teller import clock, number
from .world import DAYS, MONTHS, Scene

POINTS = "north north-east east south-east south south-west west north-west".split()
FORCE = ("calm", "light", "moderate", "fresh", "strong", "gale")
UNITS = {  # who sells what
    "Bram": "loaves;buns;tarts",
    "Greta": "sacks of flour;sacks of meal;bags of bran",
    "Bess": "herring;mackerel;crabs",
    "Ruth": "apples;pears;quinces",
    "Moll": "candles;tapers",
    "Vera": "cheeses;pats of butter",
    "Rosa": "bowls;mugs;plates;jugs",
    "Mabel": "combs of honey;pots of honey",
    "Zella": "bottles;panes;goblets",
    "Ulf": "barrels;kegs;buckets",
    "Kit": "coils of rope;balls of twine",
    "Dov": "nails;hinges;hooks",
    "Hetty": "shirts;aprons;ribbons",
    "Wat": "cabbages;leeks;pumpkins",
    "Fern": "bunches of sage;bunches of mint;jars of ointment",
    "Ned": "stools;shelves",
}
SAILORS = ("Finn", "Kerra", "Osric", "Tamsin", "Cora", "Kit", "Juno")
OUTDOORS = ("bee garden", "walled garden", "pine wood", "orchard", "hill farm", "sheepfold", "quarry", "harbour wall",
            "salt pans", "herb garden", "lighthouse")
RIDDLE_OPENINGS = ("Here is a riddle", "Guess this", "Now try this one", "Answer me this", "Tell me who I am",
                   "I know a riddle", "Listen", "I heard this one at sea")
SHORT_NAMES = "Bram Dov Finn Hob Kit Ned Piet Ulf Wat Bess Clem Fern Gil Lew Moll Ruth".split()
SIZES = ("an egg", "a walnut", "a fist", "a small potato", "two thumbs")


def some_date(rng):
    month = rng.choice(list(MONTHS))
    return rng.randint(1, MONTHS[month]), month


def dialogue(world, teller):
    scene = Scene(world, teller)
    a, b, *absent = world.cast(scene.rng, 6)
    script = teller.chance(0.5)
    weather = {"sun": "fine", "rain": "wet"}.get(scene.weather, "cold")
    names = {"a": a, "b": b, "c": absent[0], "b2": absent[3], "p": absent[3].place, "wadj": weather}
    turns = [(a, scene.say("talk.greet", **names)), (b, scene.say("talk.reply", **names))]
    topics = ["time", "price", "where", "why", "why"]
    # Each exchange is about somebody else, so that nobody is said to be in two places.
    for topic, person in zip(scene.rng.sample(topics, scene.rng.randint(2, 3)), absent):
        turns += exchange(scene, a, b, topic, {**names, "c": person})
    turns.append((a, scene.say("talk.bye", **names)))
    if not script:
        scene.tell(scene.sky(), scene.say("encounter", a=a, b=b, p=b.place))
    for speaker, words in turns:
        scene.lines.append(f"{speaker}: {words}" if script else quoted(teller, speaker, words))
    return scene.text()


def exchange(scene, a, b, topic, names):
    """Question and answer in turns; numbers, times and walking minutes fit each other."""
    thing, place = scene.world.thing(scene.rng), names["c"].place
    walk = b.place.minutes_to(place)
    paid = thing.price + scene.rng.randint(3, 30)
    text = scene.say("talk.ask." + topic, **{
        **names, "o": thing, "p": place, "s": scene.rng.choice(place.spots), "island": scene.teller.x.island,
        "min": number(walk), "Min": number(walk).cap, "clock2": clock(scene.minute + walk),
        "n1": number(paid), "n2": number(thing.price), "n3": number(paid - thing.price)})
    lines = [line[:1].upper() + line[1:] for line in text.split(" | ")]
    return [((a, b)[i % 2], line) for i, line in enumerate(lines)]


def quoted(teller, speaker, words):
    """Direct speech with the speaker before, behind or left to the reader."""
    form = teller.rng.randrange(4)
    if '"' in words:
        words = words.replace('"', "'")
    if form == 0:
        return f'{speaker} {"asked" if words.endswith("?") else teller.x.said}: "{words}"'
    if form == 1 or words.endswith("'"):
        return f'"{words}"'
    verb = teller.rng.choice(("asked", "asked", "inquired", "demanded")) if words.endswith("?") else teller.x.said
    body = words[:-1] + "," if words.endswith(".") else words
    return f'"{body}" {verb} {speaker}.'


def ship_log(world, teller):
    """Days in order; the wind shifts by a point at a time and the catch adds up."""
    day, month = some_date(teller.rng)
    scene = Scene(world, teller, month)
    a = scene.rng.choice([p for p in world.people if p.name in SAILORS])
    b = scene.rng.choice([p for p in world.people if p is not a])
    fish, total, wind, glass, force = teller.x.fish, 0, scene.rng.randrange(8), 298, 2
    scene.lines.append(f"Log of the {teller.x.boat}, {a} at the helm")
    for day in range(min(day, MONTHS[month] - 6), MONTHS[month] + 1)[:scene.rng.randint(3, 6)]:
        wind, turn = (wind + scene.rng.choice((-1, 0, 1))) % 8, scene.rng.choice((-3, -2, -1, 1, 2, 3))
        glass = max(285, min(306, glass + turn))
        force = max(0, min(5, force + (1 if turn < -1 else -1 if turn > 1 else 0)))
        # A falling glass brings wind, and in a gale nobody fishes.
        catch = 0 if force == 5 else scene.rng.randint(2, 19)
        total += catch
        haul = f"{catch} baskets of {fish}, {total} so far" if catch else f"No fishing, {total} so far"
        scene.lines.append(f"{day} {month}. Wind {POINTS[wind]}, {FORCE[force]}. Glass {glass / 10:.1f} and "
                           f"{'falling' if turn < 0 else 'rising'}. {haul}. " + scene.say("log.remark", a=a, b=b))
    return scene.text()


def keeper_log(world, teller):
    """The lighthouse uses oil every night, and more in the long ones; what is left is what is left."""
    day, month = some_date(teller.rng)
    scene = Scene(world, teller, month)
    a, b = world.cast(scene.rng, 2)
    oil = scene.rng.randint(60, 99)
    scene.lines.append(f"Lighthouse book, {month}, {oil} pints of oil in store")
    for day in range(min(day, MONTHS[month] - 6), MONTHS[month] + 1)[:scene.rng.randint(3, 5)]:
        used = scene.rng.randint(3, 5) + (4 if scene.season == "winter" else 0)
        oil -= used
        lit, out = (16, 7) if scene.season == "winter" else (20, 5)
        scene.lines.append(f"{day} {month}. Lit at {lit}.{scene.rng.randint(10, 59)}, out at {out}."
                           f"{scene.rng.randint(10, 59)}. Oil used {used} pints, left {oil} pints. "
                           + scene.say("keeper.remark", a=a, b=b))
    return scene.text()


def ledger(world, teller):
    day, month = some_date(teller.rng)
    scene = Scene(world, teller, month)
    seller = scene.rng.choice([p for p in world.people if p.name in UNITS])
    buyer = scene.rng.choice([p for p in world.people if p.place is not seller.place])
    scene.lines.append(f"Account of {buyer} with {seller.full}, {day} {month}")
    goods = UNITS[seller.name].split(";")
    total = 0
    for item in scene.rng.sample(goods, scene.rng.randint(1, len(goods))):
        count, price = scene.rng.randint(2, 12), scene.rng.randint(2, 12)
        total += count * price
        scene.lines.append(f"{count} {item} at {price} pence: {count * price} pence")
    for _ in range(scene.rng.randint(1, 2)):
        thing = world.thing(scene.rng)
        total += thing.price
        scene.lines.append(f"1 {thing.a.split(' ', 1)[1]}: {thing.price} pence")
    paid = (total // 10 + (2 if total % 10 == 9 else 1)) * 10  # never a change of "1 pence"
    scene.lines += [f"Total: {total} pence", f"Paid: {paid} pence", f"Change: {paid - total} pence"]
    scene.tell(scene.say("ledger.note", a=buyer, b=seller, goods=item))
    return scene.text()


def timetable(world, teller):
    scene = Scene(world, teller)
    a, b = world.cast(scene.rng, 2)
    island, crossing, leave = teller.x.island, scene.rng.randint(12, 55), scene.rng.randint(420, 500)
    scene.lines.append(f"Ferry to {island}, {scene.season} timetable. The crossing takes {crossing} minutes.")
    for _ in range(scene.rng.randint(3, 5)):
        arrive = leave + crossing
        scene.lines.append(f"Leaves {leave // 60}.{leave % 60:02}, arrives {arrive // 60}.{arrive % 60:02}")
        leave = arrive + scene.rng.randint(20, 90)
    scene.tell(scene.say("ferry.note", a=a, b=b, p=a.place))
    return scene.text()


def letter(world, teller):
    day, month = some_date(teller.rng)
    scene = Scene(world, teller, month)
    a, b, c, d = world.cast(scene.rng, 4)
    crossing = 5 * scene.rng.randint(3, 9)

    def line(rule, person):
        return scene.say(rule, a=a, b=b, c=person, o=world.thing(scene.rng), p=a.place,
                         s=scene.rng.choice(a.place.spots), min=number(crossing), clock2=clock(scene.minute + crossing))
    scene.lines += [f"{a.place.name.capitalize()}, {day} {month}",
                    f"{scene.rng.choice(('Dear', 'My dear', 'Dearest'))} {b},"]
    scene.tell(line("letter.open", c), scene.sky() if teller.chance(0.5) else "")
    scene.tell(line("letter.news", c), line("letter.news", d), line("letter.news", c) if teller.chance(0.4) else "")
    scene.tell(line("letter.ask", d))
    scene.tell(line("letter.close", c))
    closing = ("Your friend", "Yours ever", "With love", "Your old neighbour", "In haste", "Faithfully yours")
    scene.lines.append(f"{scene.rng.choice(closing)}, {a}")
    return scene.text()


def diary(world, teller):
    day, month = some_date(teller.rng)
    scene = Scene(world, teller, month)
    a, b, c = world.cast(scene.rng, 3)
    scene.lines.append(f"From the diary of {a.full}")
    for day in range(min(day, MONTHS[month] - 3), MONTHS[month] + 1)[:scene.rng.randint(2, 4)]:
        entry = [scene.say("diary", a=a, b=b, c=c, p=c.place, look=scene.look(c.place), o=world.thing(scene.rng),
                           w=scene.sky()) for _ in range(2)]
        scene.tell(f"{day} {month}.", *entry)
    return scene.text()


def recipe(world, teller):
    scene = Scene(world, teller)
    a, b = world.cast(scene.rng, 2)
    rng, x = scene.rng, teller.x
    kind = rng.choice([rule for rule in teller.rules if rule.startswith("dish.")])
    header, *steps = teller.rules[kind]
    people, each = rng.randint(2, 8), rng.randint(1, 3)
    names = {"n1": number(people * each), "n2": number(rng.randint(2, 6)), "n3": number(rng.randint(2, 9)),
             "n5": number(rng.randint(5, 12)), "min": number(5 * rng.randint(4, 12)), "veg": x.veg, "fruit": x.fruit,
             "herb": x.herb, "fat": x.fat, "fish": x.fish, "vessel": x.vessel, "manner": x.manner,
             "size": rng.choice(SIZES)}
    dish, ingredients = header.split("; ")
    main = names["fruit" if "{fruit}" in header else "fish" if "{fish}" in header else
                 "veg" if "{veg}" in header else "herb"].removesuffix("s").capitalize()
    scene.lines.append(f"{a}'s {main} {dish.capitalize()}, for {number(people)}")
    scene.lines.append("Take: " + ", ".join(ingredients.split("|")).format(**names) + ".")
    for i, step in enumerate(steps):
        teller.rules["step"] = [step]
        scene.lines.append(f"{i + 1}. " + scene.say("step", **names))
    scene.tell(scene.say("recipe.note", a=a, b=b))
    return scene.text()


def howto(world, teller):
    scene = Scene(world, teller)
    a, b = world.cast(scene.rng, 2)
    title, *steps = scene.rng.choice(teller.rules["howto"]).split("; ")
    scene.lines.append(f"{title}, as told by {a}")
    numbered = teller.chance(0.5)
    told = []
    for i, step in enumerate(steps):
        teller.rules["step"] = [step]
        told.append((f"{i + 1}. " if numbered else "") + scene.say("step"))
    scene.lines += told if numbered else [" ".join(told)]
    if teller.chance(0.5):
        scene.tell(f'"{teller.x.proverb}," {a} always adds.')
    return scene.text()


def riddle(world, teller):
    scene = Scene(world, teller)
    a, b = world.cast(scene.rng, 2)
    answer, *clues = scene.rng.choice(teller.rules["riddle"]).split("; ")
    clues = scene.rng.sample(clues, scene.rng.randint(2, 4))
    scene.tell(scene.say("encounter", a=a, b=b, p=b.place))
    scene.tell(f'"{scene.rng.choice(RIDDLE_OPENINGS)}," {teller.x.said} {a}. "' + " ".join(clues) + ' What am I?"')
    wrong = scene.rng.choice([r.split("; ")[0] for r in teller.rules["riddle"] if not r.startswith(answer)])
    if teller.chance(0.6):
        scene.tell(f'"{wrong.capitalize()}?" {teller.x.guessed} {b} {teller.x.manner}.')
        scene.tell(f'"No," {teller.x.said} {a}. "Think again."' if teller.chance(0.3) else
                   f'{a} shook {a.his} head and went on {a.task}.')
    scene.tell(f'"You are {answer}," {teller.x.said} {b}, and {b.he} was right.' if teller.chance(0.7) else
               f'{b} gave up, and {a} told {b.him} the answer: {answer}.')
    return scene.text()


def verse(world, teller):
    """Couplets: two lines of one rhyme family with different last words."""
    scene = Scene(world, teller)
    families = [rule for rule in teller.rules if rule.startswith("verse.")]
    a, *_ = world.cast(scene.rng, 1)
    one_beat = [p for p in world.people if p.name in SHORT_NAMES]  # longer names would spoil the metre
    scene.lines.append(f"A song for {teller.x.weekday}, sung by {a}")
    couplets = []
    for family in scene.rng.sample(families, scene.rng.choice((2, 4, 4))):
        first = second = ""
        while first.split()[-1:] == second.split()[-1:]:
            first, second = scene.rng.sample(teller.rules[family], 2)
        singer = scene.rng.choice(one_beat)
        couplets.append([line.format(a=singer) for line in (first, second)])
    for i, (first, second) in enumerate(couplets):
        scene.lines += [first + ",", second + ("." if i % 2 else ";")]
    return scene.text()


def proverbs(world, teller):
    scene = Scene(world, teller)
    a, b = world.cast(scene.rng, 2)
    saying, other = teller.x.proverb, teller.x.proverb
    scene.tell(scene.say("encounter", a=a, b=b, p=b.place))
    scene.tell(f'"{saying}," {teller.x.said} {a}.')
    scene.tell(f'"Perhaps," {teller.x.said} {b}, "but {other.low}."')
    scene.tell(scene.say("end", a=a, b=b, c0=b, p=a.place))
    return scene.text()


def slate(world, teller):
    scene = Scene(world, teller)
    scene.lines.append(f"Lotte's slate for {scene.rng.choice(DAYS[:5])}")
    for _ in range(scene.rng.randint(2, 4)):
        a, b = world.cast(scene.rng, 2)
        d1, d2, d3 = scene.rng.randint(11, 40), scene.rng.randint(2, 10), scene.rng.randint(2, 12)
        scene.tell(scene.say("slate", a=a, b=b, goods=teller.x.goods, n1=number(d1), n2=number(d2), d1=d1, d2=d2, d3=d3,
                             sum=d1 + d2, diff=d1 - d2, prod=d2 * d3))
    return scene.text()


def portrait(world, teller):
    scene = Scene(world, teller)
    a, b = world.cast(scene.rng, 2)
    scene.lines.append(a.full.replace(" the ", ", ") + " in Pellhaven")
    lines = [scene.say("portrait", a=a, b=b, p=a.place, look=a.place.looks[1], o=world.thing(scene.rng),
                       s=scene.rng.choice(a.place.spots), wage=scene.rng.choice(("a fine", "our", "a good")))
             for _ in range(scene.rng.randint(3, 5))]
    scene.tell(*lines)
    return scene.text()


def directions(world, teller):
    scene = Scene(world, teller)
    a, b, c = world.cast(scene.rng, 3)
    scene.lines.append(f"The way from {a.place} to {c.place}")
    for start, goal in ((a.place, b.place), (b.place, c.place)):
        scene.tell(scene.say("direct", p=start, p2=goal, dirs=start.way_to(goal), min=number(start.minutes_to(goal)),
                             look=start.looks[1], look2=goal.looks[1]))
    return scene.text()


def notice(world, teller):
    scene = Scene(world, teller)
    a, b, c = world.cast(scene.rng, 3)
    thing = world.thing(scene.rng)
    return scene.say("notice." + scene.rng.choice(("lost", "sale", "event")), a=a, b=b, o=thing, p=c.place, r=a.place,
                     s=scene.rng.choice(c.place.spots), more=number(thing.price + scene.rng.randint(2, 9)))


def nature(world, teller):
    scene = Scene(world, teller, teller.rng.choice(list(MONTHS)[3:9]))  # when there is something to see
    a, _ = world.cast(scene.rng, 2)
    place = world.places[scene.rng.choice(OUTDOORS)]
    n1, n2 = scene.rng.randint(4, 30), scene.rng.randint(3, 20)
    scene.lines.append(f"Nature notes of the school, {scene.season}, by {a}")
    scene.tell(*(scene.say("nature", a=a, p=place, n1=number(n1), n2=number(n2), n3=number(n1 + n2))
                 for _ in range(scene.rng.randint(3, 4))))
    return scene.text()
