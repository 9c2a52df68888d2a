"""Texts that chance makes, and what is looked for in them: which documents come first, with which scores, and which parts are shown of them?"""

import random

SEED = 20
DOCUMENTS = 400
WORDS = 240
QUERIES_OF_A_KIND = 14
FRAGMENT_DOCUMENTS = 60
FRAGMENT_QUERIES_OF_A_KIND = 6


def vocabulary(generator):
    """Words of two to four syllables, none of which is a stop word."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = set()
    while len(words) < WORDS:
        words.add("".join(generator.choice(syllables) for _ in range(generator.randint(2, 4))))
    return sorted(words)


def texts(generator, words):
    """Titles and texts: few words are in many, as in languages, and the lengths are from one word to some hundreds."""
    ranked = generator.sample(words, len(words))
    weights = [1 / (rank + 3) for rank in range(len(words))]

    def text(length):
        return " ".join(generator.choices(ranked, weights, k=length))

    return [(text(generator.randint(1, 5)), text(int(generator.paretovariate(0.8) * 4) % 300 + 1)) for _ in range(DOCUMENTS)]


def kinds(generator, words, documents):
    """Query texts, by what is asked."""

    def word():
        """Often one that is in many documents."""
        return generator.choice(generator.choice(documents)[1].split()) if generator.random() < 0.8 else generator.choice(words)

    def neighbours(gap=1):
        """Two words of one document, near each other."""
        long = [text.split() for _, text in documents if len(text.split()) > gap + 1]
        text = generator.choice(long)
        at = generator.randrange(len(text) - gap)
        return text[at], text[at + gap]

    def boost():
        return generator.choice(["0.5", "2", "3.5", "10"])

    yield lambda: word()
    yield lambda: f"title:{word()}"
    yield lambda: f"{word()} {word()}"
    yield lambda: f"{word()} {word()} {word()} {word()} {word()}"
    yield lambda: f"{word()} AND {word()}"
    yield lambda: f"+{word()} {word()} -{word()}"
    yield lambda: f"{word()} OR title:{word()}"
    yield lambda: f"({word()} {word()}) AND ({word()} title:{word()})"
    yield lambda: f"{word()}^{boost()} {word()}"
    yield lambda: f"({word()} {word()})^{boost()} {word()}^{boost()}"
    yield lambda: '"{} {}"'.format(*neighbours())
    yield lambda: '"{} {}"~{}'.format(*neighbours(generator.randint(1, 3)), generator.randint(1, 4))
    yield lambda: '"{1} {0}"~4'.format(*neighbours())
    yield lambda: '"{} {}"^{} {}'.format(*neighbours(), boost(), word())
    yield lambda: f"{word()[:3]}*"
    yield lambda: f"{word()[:3]}* {word()}"
    yield lambda: f"{word()} {word()[:2]}*^{boost()}"
    yield lambda: f"{word()[:2]}?{word()[:1]}*"
    yield lambda: f"[{min(pair := (word(), word()))} TO {max(pair)}]"
    yield lambda: f"{word()} title:[{min(pair := (word(), word()))} TO {max(pair)}]"
    yield lambda: f"{word()}~1"
    yield lambda: f"{word()}~2 {word()}"
    yield lambda: f"*:* {word()}"
    yield lambda: f"{word()} -title:{word()}"
    yield lambda: f"{word()} NOT ({word()} {word()})"


def lines(_):
    """The corpus, and the queries."""
    generator = random.Random(SEED)
    words = vocabulary(generator)
    documents = texts(generator, words)
    for title, text in documents:
        yield "document", title, text
    for ask in kinds(generator, words, documents):
        for _ in range(QUERIES_OF_A_KIND):
            yield "score", "standard", ask()


def fragment_lines():
    """Texts with all kinds of letters between and in their words, and queries with the number and the length of the parts that are asked for."""
    generator = random.Random(SEED)
    words = vocabulary(generator)
    plain = texts(generator, words)[:FRAGMENT_DOCUMENTS]
    english = ["the", "a", "of", "and", "running", "runs", "foxes", "fox", "quick", "quickly", "jumped", "jumping", "cities", "city"]

    def shown(word):
        word = generator.choice(english) if generator.random() < 0.2 else word
        return generator.choice(
            [word, word, word, word.upper(), word.capitalize(), f"<b>{word}</b>", f"{word}\u0301", f"\U0001f600{word}", f"{word}'s", f"1.5-{word}"]
        )

    documents = []
    for title, text in plain:
        between = [" ", " ", " ", ", ", ". ", "\n", " - ", "  ", "; ", " & ", " \U0001f680 ", "\u3000", "\t"]
        documents.append((title, "".join(shown(word) + generator.choice(between) for word in text.split())))
    documents.append(("long", " ".join(f"{word} filler{n % 90}" for n, word in enumerate(generator.choices(words, k=5_000)))))
    for title, text in documents:
        yield "document", title, text
    for analyzer in ("standard", "english"):
        for ask in kinds(generator, words, plain):
            for _ in range(FRAGMENT_QUERIES_OF_A_KIND):
                text = ask()
                if generator.random() < 0.3:
                    text += " " + generator.choice(
                        ["fox", "quick city", '"quick fox"~3', "run*", '"jumping fox"', "city^3", "qu?ck", "citi~2", '"of foxes"', '"fox the city"']
                    )
                yield "fragments", f"{analyzer} {generator.choice([1, 1, 2, 3, 5])} {generator.choice([0, 0, 10, 30, 60, 1000])}", text
