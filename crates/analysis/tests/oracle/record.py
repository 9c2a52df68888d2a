#!/usr/bin/env python3
"""Records what Lucene 4.6.1 and 9.12.1 make of texts and queries, as test data of the crate `analysis`.

usage: record.py [--only words|queries|scores|fragments]

Run by hand when texts or queries change, never by tests. It needs a JDK and Maven (Debian: default-jdk-headless, maven),
fetches Lucene once into $SETTEE_CACHE/lucene, and writes ../data/*.jsonl.gz. The tests say what differs.
"""

import argparse
import gzip
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import corpus
import queries

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent / "data"
SEED = 20

# Of the words of a language, those that its stemmer may know endings of.
ENDINGS_PER_LANGUAGE = 420
WORDS_A_LINE = 60

ARTIFACTS = {
    "lucene4": ("4.6.1", ["lucene-analyzers-common", "lucene-analyzers-stempel", "lucene-queryparser", "lucene-highlighter"]),
    "lucene9": ("9.12.1", ["lucene-analysis-common", "lucene-queryparser"]),
}

# Where in Lucene's sources the endings of a language stand.
STEMMERS = {
    "arabic": ["ar/ArabicStemmer.java"],
    "armenian": ["ArmenianStemmer.java"],
    "basque": ["BasqueStemmer.java"],
    "brazilian": ["br/BrazilianStemmer.java"],
    "bulgarian": ["bg/BulgarianStemmer.java"],
    "catalan": ["CatalanStemmer.java"],
    "czech": ["cz/CzechStemmer.java"],
    "danish": ["DanishStemmer.java"],
    "dutch": ["ext/DutchStemmer.java"],
    "english": ["en/PorterStemmer.java"],
    "finnish": ["FinnishStemmer.java"],
    "french": ["fr/FrenchLightStemmer.java"],
    "galician": ["gl/galician.rslp"],
    "german": ["de/GermanLightStemmer.java"],
    "greek": ["el/GreekStemmer.java"],
    "hindi": ["hi/HindiStemmer.java"],
    "hungarian": ["ext/HungarianStemmer.java"],
    "indonesian": ["id/IndonesianStemmer.java"],
    "irish": ["IrishStemmer.java"],
    "italian": ["it/ItalianLightStemmer.java"],
    "latvian": ["lv/LatvianStemmer.java"],
    "norwegian": ["ext/NorwegianStemmer.java"],
    "persian": [],
    "polish": [],
    "portuguese": ["pt/PortugueseLightStemmer.java"],
    "romanian": ["RomanianStemmer.java"],
    "russian": ["ext/RussianStemmer.java"],
    "spanish": ["es/SpanishLightStemmer.java"],
    "swedish": ["ext/SwedishStemmer.java"],
    "thai": [],
    "turkish": ["TurkishStemmer.java"],
}

NO_LANGUAGE = ["standard", "classic", "email", "simple", "simple_asciifolding", "whitespace", "keyword", "cjk"]
CLOUSEAU_ONLY = {"brazilian", "greek"}


def cache():
    sys.path.insert(0, str(HERE.parents[3] / "scripts"))
    import brokers

    return brokers.cache() / "lucene"


def fetch(name):
    """The folder with the jars of one Lucene, and of its sources; fetched when it is not there."""
    version, artifacts = ARTIFACTS[name]
    home = cache() / version
    if all((home / "jars" / f"{artifact}-{version}.jar").exists() for artifact in artifacts):
        return home
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as work:
        dependencies = "".join(
            f"<dependency><groupId>org.apache.lucene</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
            for artifact in artifacts
        )
        pom = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>settee</groupId>
          <artifactId>oracle</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>"""
        pathlib.Path(work, "pom.xml").write_text(pom, encoding="utf-8")
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies"]
        subprocess.run([*copy, "-DoutputDirectory=jars"], cwd=work, check=True)
        subprocess.run([*copy, "-Dclassifier=sources", "-DoutputDirectory=sources"], cwd=work, check=True)
        pathlib.Path(work).rename(home)
        pathlib.Path(work).mkdir()
    return home


def endings(home, language):
    """The texts in quotation marks in the stemmer's source, and those made of single letters."""
    found = set()
    for jar in sorted((home / "sources").glob("*.jar")) + sorted((home / "jars").glob("*.jar")):
        with zipfile.ZipFile(jar) as sources:
            for entry in sources.namelist():
                if any(entry.endswith("/" + name) for name in STEMMERS[language]):
                    text = sources.read(entry).decode()
                    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text)
                    found.update(re.findall(r'"([^"\\ ]+)"', text))
                    found.update(re.findall(r"'(\w)'", text))
    found = sorted(ending for ending in found if ending.isalpha() or any(ord(letter) > 0x300 for letter in ending))
    return found


def words(home, language, generator):
    """Words of the language's text, and beginnings of them with the endings that its stemmer knows."""
    text = (HERE / "texts" / f"{language}.txt").read_text(encoding="utf-8")
    own = sorted(set(re.findall(r"[^\s.,;:!?()·।։。、「」]+", text.lower())))
    known = endings(home, language)
    if len(known) > ENDINGS_PER_LANGUAGE:
        known = sorted(generator.sample(known, ENDINGS_PER_LANGUAGE))
    made = []
    for ending in known:
        for _ in range(3):
            beginning = generator.choice(own)[: generator.randint(1, 8)]
            made.append(beginning + ending)
        made.append(ending)
    for _ in range(200 if known else 0):
        beginning = generator.choice(own)[: generator.randint(2, 6)]
        made.append(beginning + generator.choice(known) + generator.choice(known))
    made += [word[:end] for word in own for end in range(2, len(word))][:400]
    return [word for word in dict.fromkeys(made) if word.strip()]


def escaped(text):
    return "".join(letter if " " <= letter != "\\" and letter != "\x7f" else f"\\u{ord(letter):04x}" for letter in text)


def word_lines(name, home):
    generator = random.Random(SEED)
    for language in sorted(STEMMERS):
        if name == "lucene9" and language in CLOUSEAU_ONLY:
            continue
        if language == "polish":
            continue
        text = (HERE / "texts" / f"{language}.txt").read_text(encoding="utf-8")
        yield "words", language, text
        made = words(home, language, generator)
        for at in range(0, len(made), WORDS_A_LINE):
            yield "words", language, " ".join(made[at : at + WORDS_A_LINE])
    alphabet = [chr(code) for code in (*range(0x20, 0x7F), 0xA0, 0xB7, 0xE9, 0x301, 0x5D0, 0x5D2, 0x660, 0x66C, 0x905, 0x94D, 0xE01, 0xE31, 0x200C)]
    alphabet += list("漢字ひらカナｶﾞ한글ーΣςβİı’‘“_.,:;'\"-@/#€😀👍🏽🇩🇪\u200d\ufe0f\u20e3\U00020000𝐀Ⓜ©❤ﬁ")
    for analyzer in NO_LANGUAGE:
        texts = ["standard"] if analyzer not in {"email", "cjk"} else ["standard", analyzer]
        for text in texts + (["thai", "arabic"] if analyzer in {"standard", "classic", "simple"} else []):
            for line in (HERE / "texts" / f"{text}.txt").read_text(encoding="utf-8").splitlines():
                yield "words", analyzer, line
        for _ in range(300):
            yield "words", analyzer, "".join(generator.choice(alphabet) for _ in range(generator.randint(1, 40)))
        for _ in range(300):
            few = generator.sample(alphabet, 5)
            yield "words", analyzer, "".join(generator.choice(few) for _ in range(generator.randint(1, 12)))
        for long in ("x" * 254, "x" * 255, "x" * 256, "x" * 600, "x." * 300, "漢" * 300, "a b" + "\u0301" * 400 + "c", "_" * 300 + "x"):
            yield "words", analyzer, f"before {long} after"
    if name == "lucene9":
        emoji = list("😀👍❤✈👩👨🚀☎©🇩🇪🇫Ⓜ1#*a_ 漢")
        joints = ["\u200d", "\ufe0f", "\u20e3", "🏽", "\u0301", "🇩", "\ufe0e", "\U000e0067", "\U000e007f"]
        for _ in range(1500):
            yield (
                "words",
                "standard",
                "".join(generator.choice(emoji if generator.random() < 0.5 else joints) for _ in range(generator.randint(1, 7))),
            )


def normalize_lines(name):
    if name == "lucene4":
        return
    for language in sorted([*STEMMERS, *NO_LANGUAGE]):
        if language in CLOUSEAU_ONLY or language == "polish":
            continue
        source = language if language in STEMMERS else "standard"
        text = (HERE / "texts" / f"{source}.txt").read_text(encoding="utf-8")
        for word in text.split()[:60]:
            yield "normalize", language, word


def run(name, home, lines, out, recorder="Recorder"):
    """Sends the lines through the recorder of this Lucene."""
    with tempfile.TemporaryDirectory() as work:
        jars = f"{home}/jars/*"
        sources = [HERE / "Recorder.java", HERE / "Names.java", *(HERE / name).glob("*.java")]
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", work, *map(str, sources)], check=True)
        text = "".join(f"{kind}\t{analyzer}\t{escaped(line)}\n" for kind, analyzer, line in lines)
        java = ["java", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8", "-Duser.language=en", "-Duser.country=US"]
        done = subprocess.run([*java, "-cp", f"{work}:{jars}", recorder], input=text.encode(), stdout=subprocess.PIPE, check=True)
    # No time and no name in the file, so that the same recording is the same file.
    with open(out, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as zipped:
        zipped.write(done.stdout)
    count = len(done.stdout.splitlines())
    print(f"{out.relative_to(HERE.parent)}: {count} lines, {out.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["words", "queries", "scores", "fragments"])
    only = parser.parse_args().only
    DATA.mkdir(exist_ok=True)
    for name in ARTIFACTS:
        home = fetch(name)
        if only in (None, "words"):
            run(name, home, word_lines(name, home), DATA / f"words-{name}.jsonl.gz")
            if name == "lucene9":
                run(name, home, normalize_lines(name), DATA / f"normalized-{name}.jsonl.gz")
        if only in (None, "queries"):
            run(name, home, queries.lines(name), DATA / f"queries-{name}.jsonl.gz")
        if only in (None, "scores"):
            run(name, home, corpus.lines(name), DATA / f"scores-{name}.jsonl.gz")
        if only in (None, "fragments") and name == "lucene4":
            run(name, home, corpus.fragment_lines(), DATA / f"fragments-{name}.jsonl.gz", "Fragments")


if __name__ == "__main__":
    main()
