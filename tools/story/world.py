"""Pellhaven: its people, places and things, and a scene that knows where each of them is."""
from .teller import Word, clock, load_rules, number

SEASONS = ("spring", "summer", "autumn", "winter")
WEATHER = {"spring": "sun rain wind fog", "summer": "sun sun rain wind fog",
           "autumn": "sun rain wind fog frost", "winter": "rain wind fog frost snow"}
MONTHS = {"January": 31, "February": 28, "March": 31, "April": 30, "May": 31, "June": 30, "July": 31,
          "August": 31, "September": 30, "October": 31, "November": 30, "December": 31}
PRONOUNS = {"he": ("he", "him", "his", "himself"), "she": ("she", "her", "her", "herself")}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def season_of(month):
    return SEASONS[(list(MONTHS).index(month) - 2) % 12 // 3]


class Place:
    def __init__(self, row):
        name, self.preposition, x, y, spots, looks = (part.strip() for part in row.split("|"))
        self.name, self.x, self.y = Word(name), int(x), int(y)
        self.spots = [Word(s.strip()) for s in spots.split(";")]
        self.looks = [s.strip() for s in looks.split(";")]
        self.at = f"{self.preposition} the {name}"
        self.At = Word(self.at).cap
        self.to = f"to the {name}"

    def __str__(self):
        return f"the {self.name}"

    def minutes_to(self, other):
        """Walking time; a multiple of five, so that clock times stay easy to say."""
        return 5 * max(1, round((abs(self.x - other.x) + abs(self.y - other.y)) / 2))

    def way_to(self, other):
        """The streets of Pellhaven are a grid: so many corners one way, then so many the other."""
        legs = []
        for steps, plus, minus in ((other.x - self.x, "east", "west"), (other.y - self.y, "south", "north")):
            if steps:
                corners = "corner" if abs(steps) == 1 else "corners"
                legs.append(f"{number(abs(steps))} {corners} {plus if steps > 0 else minus}")
        return " and then ".join(legs)


class Person:
    def __init__(self, row, places):
        self.name, he, self.trade, place, self.trait, self.habit = (part.strip() for part in row.split("|"))
        self.he, self.him, self.his, self.himself = PRONOUNS[he]
        self.He, self.His = self.he.capitalize(), self.his.capitalize()
        self.place = places[place]
        self.full = f"{self.name} the {self.trade}"
        self.tasks, self.makes, self.draws = [], [], None

    def learn(self, tasks, makes, draws):
        self.tasks, self.makes, self.draws = tasks, makes, draws

    @property
    def task(self):
        """What this person may be found doing: mostly the trade, sometimes a chore."""
        return self.draws.among(self.name, self.tasks) if self.draws.chance(0.8) else self.draws.task

    def __str__(self):
        return self.name


class Thing:
    """One particular thing: 'a brass lamp' when it comes in, 'the lamp' from then on."""

    def __init__(self, row, rng):
        self.name, price, kinds, verb = (part.strip() for part in row.split("|"))
        self.verb = verb.rstrip(" *")
        self.pair = "*" in kinds
        self.price = int(price)
        kind = rng.choice([k.strip() for k in kinds.rstrip(" *").split(",")])
        self.a = f"a pair of {kind} {self.name}" if self.pair else f"a {kind} {self.name}"
        self.full, self.Full = Word(f"the {kind} {self.name}"), Word(f"The {kind} {self.name}")
        self.title = f"The {kind.title()} {self.name.title()}".replace("'S", "'s").replace(" Of ", " of ")
        forms = ("them", "they", "They", "were", "are") if self.pair else ("it", "it", "It", "was", "is")
        self.it, self.sub, self.It, self.was, self.is_ = forms
        self.pence, self.be = number(self.price), "be"

    def __getattr__(self, name):
        if name == "is":  # a keyword in Python, but not in a template
            return self.is_
        raise AttributeError(name)

    def __str__(self):
        return f"the {self.name}"


class World:
    def __init__(self, draws):
        tables = load_rules("world.txt")
        self.places = {p.name: p for p in map(Place, tables["places"])}
        self.people = [Person(row, self.places) for row in tables["people"]]
        self.thing_rows = tables["things"]
        trades = {}
        for row in tables["trades"]:
            trade, *lists = row.split("|")
            trades[trade.strip()] = [[Word(w.strip()) for w in part.split(";") if w.strip()] for part in lists]
        for person in self.people:
            person.learn(*trades[person.trade], draws)

    def thing(self, rng, single=False):
        rows = [row for row in self.thing_rows if not (single and "*" in row)]
        return Thing(rng.choice(rows), rng)

    def cast(self, rng, count):
        """Different people who work in different places."""
        chosen = []
        for person in rng.sample(self.people, len(self.people)):
            if all(person.place is not other.place for other in chosen):
                chosen.append(person)
            if len(chosen) == count:
                return chosen
        raise ValueError("more people asked for than there are workplaces")


class Scene:
    """The state of one story. Its moves refuse what cannot be, so the telling cannot contradict itself."""

    def __init__(self, world, teller, month=None):
        self.world, self.teller, self.rng = world, teller, teller.rng
        self.season = season_of(month) if month else self.rng.choice(SEASONS)
        self.weather = self.rng.choice(WEATHER[self.season].split())
        self.minute = 5 * self.rng.randint(7 * 12, 9 * 12)
        self.where = {}  # person -> place
        self.lies = {}   # thing -> (place, spot)
        self.lines = []
        teller.new_document()

    def say(self, rule, **names):
        return self.teller.say(rule, **{"season": self.season, "clock": clock(self.minute), **names})

    def sky(self):
        return self.say("weather." + self.weather)

    def tell(self, *parts):
        """Adds a paragraph."""
        self.lines.append(" ".join(part for part in parts if part))

    def text(self):
        return "\n".join(self.lines)

    def look(self, place):
        return self.rng.choice(place.looks)

    def enter(self, person, place=None):
        self.where[person] = place or person.place

    def put(self, person, thing, spot):
        place = self.where[person]
        assert spot in place.spots and thing not in self.lies
        self.lies[thing] = (place, spot)
        return self.say("put", a=person, o=thing, s=spot, p=place)

    def move(self, person, thing, spot):
        """Another hand moves the thing; the caller tells it."""
        place, old = self.lies[thing]
        assert self.where[person] is place and spot in place.spots and spot != old
        self.lies[thing] = (place, spot)

    def find(self, person, thing):
        place, spot = self.lies.pop(thing)
        assert self.where[person] is place, "found where it is not"
        return self.say("found", a=person, o=thing, s=spot, p=place)

    def go(self, person, place):
        start = self.where[person]
        assert start is not place
        walk = start.minutes_to(place)
        text = self.say("go", a=person, r=start, p=place, look=self.look(place), min=number(walk))
        self.minute += walk
        self.where[person] = place
        return text

    def work(self, person, host=None):
        """Some hours of work, the host's if the person is a guest."""
        hours = self.rng.randint(2, 4)
        text = self.say("work", a=person, h=host or person, n=number(hours))
        self.minute += 60 * hours
        return text

    def aside(self, person):
        """Now and then a sentence that only paints the scene."""
        return self.say("middle", a=person) if self.teller.chance(0.45) else ""
