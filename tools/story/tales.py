"""Tales: each plot moves people and things about in a Scene and has it told beat by beat."""
from .teller import clock, number
from .world import DAYS, Scene


def begin(scene, a, thing=None, title=None):
    if title and scene.teller.chance(0.6):
        scene.lines.append(title)
    thing = thing or scene.world.thing(scene.rng)
    return scene.say("open", a=a, o=thing, p=a.place, w=scene.sky(), hour=number(scene.rng.randint(6, 10)))


def finish(scene, a, b):
    other = next(p for p in scene.world.cast(scene.rng, 4) if p not in (a, b))
    scene.tell(scene.say("end", a=a, b=b, c0=other, p=a.place))
    return scene.text()


def two_days(scene):
    first = scene.rng.randrange(5)
    return DAYS[first], DAYS[first + 1]


def lost(scene):
    """A thing is put down, missed elsewhere, asked for, and found where it was put."""
    a, b, c = scene.world.cast(scene.rng, 3)
    thing = scene.world.thing(scene.rng)
    home = a.place
    scene.enter(a)
    scene.tell(begin(scene, a, thing, thing.title), scene.say("owns", a=a, b=c, o=thing))
    scene.tell(scene.put(a, thing, scene.rng.choice(home.spots)))
    scene.tell(scene.go(a, b.place), scene.say("meet", a=a, b=b), scene.aside(a))
    scene.tell(scene.work(a, b), scene.say("miss", a=a, o=thing))
    scene.tell(scene.say("askfor", a=a, b=b, o=thing))
    scene.tell(scene.say("deny", a=a, b=b, o=thing, p2=home))
    last = b
    if scene.teller.chance(0.5):
        scene.tell(scene.go(a, c.place), scene.say("meet", a=a, b=c))
        scene.tell(scene.say("askfor", a=a, b=c, o=thing))
        scene.tell(scene.say("deny", a=a, b=c, o=thing, p2=home))
        last = c
    scene.tell(scene.say("retrace", a=a, b=last, o=thing, p2=home, r=b.place))
    scene.tell(scene.go(a, home), scene.find(a, thing))
    return finish(scene, a, last)


def moved(scene):
    """While the owner is away somebody moves the thing; the owner first looks in the old place."""
    a, b, c, d = scene.world.cast(scene.rng, 4)
    thing = scene.world.thing(scene.rng)
    home = a.place
    old, new = scene.rng.sample(home.spots, 2)
    scene.enter(a)
    scene.tell(begin(scene, a, thing, thing.title), scene.say("owns", a=a, b=d, o=thing))
    scene.tell(scene.put(a, thing, old), scene.go(a, d.place))
    scene.tell(scene.say("meet", a=a, b=d), scene.work(a, d))
    scene.enter(c, home)
    told = scene.say("hide", a=a, c=c, o=thing, s=old, s2=new, p=home, p2=d.place)
    scene.move(c, thing, new)
    scene.tell(told, scene.say("saw", b=b, c=c))
    scene.minute += d.place.minutes_to(home)
    scene.enter(a, home)
    scene.tell(scene.say("falsebelief", a=a, c=c, o=thing, s=old))
    assert scene.lies[thing] == (home, new)
    scene.tell(scene.say("reveal", a=a, b=b, c=c, o=thing, s2=new, p2=d.place))
    return finish(scene, a, b)


def borrowed(scene):
    a, b, c = scene.world.cast(scene.rng, 3)
    thing = scene.world.thing(scene.rng, single=True)
    day, day2 = two_days(scene)
    spot = scene.rng.choice(a.place.spots)
    names = dict(a=a, b=b, o=thing, day=day, day2=day2, s=spot, p=a.place)
    scene.enter(a)
    scene.tell(begin(scene, a, thing, "A Borrowed " + thing.name.title().replace(" Of ", " of ")))
    scene.tell(scene.say("borrow.ask", **names))
    scene.tell(scene.say("borrow.late", **names), scene.aside(a))
    scene.tell(scene.say("borrow.need", **names))
    food = scene.teller.x.food
    scene.tell(scene.go(a, b.place))
    scene.tell(scene.say("borrow.sorry", food=food, **names), scene.say("forgive", a=a, b=b, food=food))
    return finish(scene, a, b)


def runaway(scene):
    """An animal runs from place to place; each witness points to where it is seen next."""
    a, *others = scene.world.cast(scene.rng, 5)
    pet = scene.teller.x.pet
    scene.enter(a)
    scene.tell(begin(scene, a, title=f"How {a} Chased the {pet[4:].title()}".replace("'S", "'s")))
    scene.tell(scene.say("catch", a=a, pet=pet))
    route = [person.place for person in others]
    for witness, here, there in zip(others, route, route[1:]):
        scene.tell(scene.go(a, here), scene.say(
            "wander", a=a, b=witness, p=here, p2=there, pet=pet, look=scene.look(here),
            spotthing=scene.teller.x.chewable), scene.aside(a))
    scene.enter(a, route[-1])
    scene.tell(scene.say("caught", a=a, p=route[-1], pet=pet, s=scene.rng.choice(route[-1].spots),
                         spotthing=scene.teller.x.chewable))
    return finish(scene, a, others[-2])


def shared(scene):
    """Gathering adds, sharing subtracts; what is left is what must be left."""
    a, b, c = scene.world.cast(scene.rng, 3)
    goods, (day, day2) = scene.teller.x.goods, two_days(scene)
    first, more = scene.rng.randint(4, 20), scene.rng.randint(3, 12)
    total = first + more
    gift_b = scene.rng.randint(2, total // 3)
    gift_c = scene.rng.randint(2, total // 3)
    scene.enter(a)
    scene.tell(begin(scene, a, title=f"{number(total).cap} {goods.capitalize()}"), scene.aside(a))
    scene.tell(scene.say("gather", a=a, b=b, goods=goods, day=day, day2=day2, p=b.place,
                         n1=number(first), n2=number(more), n3=number(total)))
    scene.tell(scene.go(a, c.place), scene.say("meet", a=a, b=c))
    scene.tell(scene.say("share", a=a, b=b, c=c, goods=goods, n1=number(total), n2=number(gift_b),
                         n3=number(gift_c), n4=number(total - gift_b - gift_c)))
    return finish(scene, a, c)


def bought(scene):
    a, b = scene.world.cast(scene.rng, 2)
    purse = scene.rng.randint(60, 99)
    scene.enter(a)
    scene.tell(begin(scene, a, title=f"{a.name} Goes Shopping"))
    scene.tell(scene.go(a, b.place), scene.say("meet", a=a, b=b))
    for _ in range(scene.rng.randint(2, 3)):
        thing = scene.world.thing(scene.rng)
        if thing.price > purse - 2:
            continue
        rest = purse - thing.price
        scene.tell(scene.say("buy", a=a, b=b, o=thing, n1=number(purse), n2=number(thing.price),
                             n3=number(rest)), scene.aside(a))
        purse = rest
    return finish(scene, a, b)


def ferry(scene):
    a, b = [p for p in scene.world.cast(scene.rng, 3) if p.name != "Cora"][:2]  # she is at the helm
    island, crossing = scene.teller.x.island, 5 * scene.rng.randint(3, 9)
    names = dict(a=a, b=b, island=island, boat=scene.teller.x.boat, min=number(crossing),
                 Min=number(crossing).cap, beast=scene.teller.x.beast)
    scene.enter(a)
    scene.tell(begin(scene, a, title="To " + island))
    scene.tell(scene.go(a, scene.world.places["ferry landing"]))
    names["clock2"] = clock(scene.minute + crossing)
    scene.tell(scene.say("sail.leave", **names), scene.aside(a))
    scene.minute += crossing
    scene.tell(scene.say("sail.arrive", **names))
    scene.tell(scene.say("sail.do", **names), scene.work(a))
    return finish(scene, a, b)


def storm(scene):
    a, b, c = scene.world.cast(scene.rng, 3)
    scene.weather = "wind"
    names = dict(a=a, b=b, c=c, boat=scene.teller.x.boat, dir=scene.teller.x.direction,
                 p=scene.world.places["harbour wall"])
    scene.tell(begin(scene, a, title="The Night of the " + names["boat"]))
    scene.minute = 60 * scene.rng.randint(15, 18)
    scene.tell(scene.say("storm.sign", **names))
    scene.minute += 60
    scene.tell(scene.say("storm.blow", **names), scene.say("storm.aboard", **names))
    scene.tell(scene.say("storm.wait", **names), scene.say("storm.aboard", **names))
    later = clock(scene.minute + 5 * scene.rng.randint(13, 40))
    scene.tell(scene.say("storm.home", clock2=later, **names))
    return finish(scene, a, b)


def apprentice(scene):
    """Two failures and a success on three days that follow each other."""
    a, b, c = scene.world.cast(scene.rng, 3)
    while not b.makes:
        a, b, c = scene.world.cast(scene.rng, 3)
    first = scene.rng.randrange(4)
    names = dict(a=a, b=b, c=c, p=b.place, made=scene.rng.choice(b.makes))
    scene.enter(a)
    scene.tell(begin(scene, a, title=f"{a.name} Learns a Trade"))
    scene.tell(scene.say("craft.start", **names))
    scene.tell(scene.say("craft.first", day=DAYS[first], **names), scene.aside(a))
    scene.tell(scene.say("craft.again", day=DAYS[first + 1], **names), scene.aside(a))
    scene.tell(scene.say("craft.done", day=DAYS[first + 2], **names))
    return finish(scene, a, b)


def race(scene):
    a, b, c, d = scene.world.cast(scene.rng, 4)
    names = dict(a=a, b=b, c=c, p=a.place, p2=d.place)
    scene.enter(a)
    scene.tell(scene.sky(), scene.say("race.enter", **names))
    for beat in ("race.run", "race.turn", "race.end"):
        scene.tell(scene.say(beat, **names), scene.aside(a))
    return finish(scene, a, c)


def rumour(scene):
    a, b, c = scene.world.cast(scene.rng, 3)
    fact, place = scene.teller.x.fact, scene.rng.choice([a.place, b.place])
    names = dict(a=a, b=b, c=c, fact=fact, p=place, day=scene.rng.choice(DAYS))
    scene.tell(begin(scene, a, title="What " + a.name + " Saw"))
    for beat in ("rumour.start", "rumour.grow", "rumour.end"):
        scene.minute += 5 * scene.rng.randint(3, 20)
        scene.tell(scene.say(beat, **names), scene.aside(a if beat.endswith("start") else c))
    return finish(scene, a, c)


def gift(scene):
    """A present is bought, hidden, and found on the day where it was hidden."""
    a, b, c, d = scene.world.cast(scene.rng, 4)
    thing, day = scene.world.thing(scene.rng), scene.rng.choice(DAYS)
    purse = thing.price + scene.rng.randint(3, 40)
    names = dict(a=a, b=b, c=c, o=thing, day=day)
    scene.enter(a)
    scene.tell(begin(scene, a, thing, f"A Present for {b}"), scene.say("gift.plan", **names))
    scene.tell(scene.go(a, d.place), scene.say("meet", a=a, b=d))
    scene.tell(scene.say("buy", a=a, b=d, o=thing, n1=number(purse), n2=number(thing.price),
                         n3=number(purse - thing.price)))
    scene.tell(scene.go(a, c.place), scene.put(a, thing, scene.rng.choice(c.place.spots)))
    scene.tell(scene.say("gift.guess", **names))
    place, spot = scene.lies[thing]
    scene.tell(scene.say("gift.day", s=spot, p=place, **names))
    return finish(scene, a, b)


PLOTS = (gift, lost, lost, moved, moved, borrowed, runaway, shared, bought, ferry, storm, apprentice, race, rumour)


def tale(world, teller):
    return teller.rng.choice(PLOTS)(Scene(world, teller))
