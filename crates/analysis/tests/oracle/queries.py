"""Query texts for the oracle: what people write, what is odd, and what chance makes of the languages' words."""

import random

SEED = 20

BOTH = r"""
fox
quick fox brown
+quick -red
+fox brown
fox +nosuch
quick and nosuch
quick AND red
quick OR red
honey OR quick AND red
quick AND red OR honey
(honey OR quick) AND red
NOT fox
not fox
-fox
-fox -dog
*:* -fox
*:* NOT author:bob
!fox dog
fox && dog || cat
fox & dog | cat
title:(quick fox)
title:(+quick +fox)^3
title:(lazy OR bears) AND dog
author:(bob OR alice)
((fox))
((fox dog))
(fox) (dog)
(fox dog)^2 cat
+(fox dog) -(quick honey)
(+fox -dog) AND cat
fox AND -quick
fox AND NOT (quick OR lazy)
fox AND NOT quick
fox OR NOT quick
(fox AND (quick OR honey)) OR (dog AND NOT fox)
a AND b OR c AND d
a OR b AND c OR d
+a OR b
a AND +b
a -b OR c
the
the fox
the AND fox
+the fox
fox -the
+fox -the
the of and
(the)
(the of) fox
"over the lazy dog"
"lazy dog"~3
"lazy dog"~3^2
"the fox"
"fox the"
"the"
"fox"
""
"a \"quoted\" word"
title:"two words"^2.5
roam~
roam~1
roam~2
foam~0.5
foam~0.9
foam~3
foam~0
ROAM~1
fox~0^2
run*
RUN*
r*n
r?n
Ru?N*
run**
*
?un
*un
title:*
default:*
*:*
*:*^2
*:fox
/[fr]oam/
/fox(es)?/
/FOX/
title:/b.b/^2
/a\/b/
author:[alice TO bob]
author:{alice TO bob}
author:[alice TO bob}
author:{alice TO bob]
author:[ALICE TO Bob]
author:[* TO bob]
author:[dave TO *]
author:[* TO *]
author:{* TO *}
author:["alice smith" TO "bob"]
author:[a TO b]^3
[a TO b]
author:[alice bob]
author:[TO TO TO]
n:5
n:5.0
n:"5"
n:\-7
n:-7
n:[1 TO 5]
n:{1 TO 5}
n:[1 TO 5}
n:[-10 TO 0]
n:[* TO 0]
n:{5 TO *]
n:[5 TO *}
n:[* TO *]
n:5^2
n:[1.5 TO 2.5]^2
n:[1 TO x]
n:1e3
n:1E3
n:1,000
n:05
n:.5
n:5.
n:+5
n:5x
n:5*
n:hello
n:NaN
n:Infinity
n:[-Infinity TO Infinity]
n:[1e3 TO 1E4]
n:"1 2"
n:5~
n:5~1
m:5
9.12
42
fox 42
full-text
full\-text
forty\-two
\*
\+fox
fo\x
fo\*o
fo\*o*
fo\?o
\"fox\"
http\://example.com
http://example.com
nobody\ at\ all
a/b
x&y
x|y
caf\u00e9
\u0041bc
\u00
\u00zz
fox\
fox^
fox^x
fox^-1
fox^2
fox^2.5
fox^2^3
fox^1
fox^0
fox^1000000000
fox ^2
fox^ 2
fox)
(fox
((fox)
()
"fox
AND fox
fox AND
fox AND OR dog
OR
NOT
+
-
!
+ fox
- fox
! fox
+-fox
fox:
:fox
a:b:c
a:(b:c d)
a:(b (c:d e) f)
year:[1 TO
year:[1 TO 2
year:[1 2]
year:1 TO 2]
{fox}
[]
/fox
/
~
~2
^2
fox~abc
"fox dog"~
"fox dog"~2.7
fox\:bar
field\ name:fox
field\:x:fox
  fox  
fox dog
fox	dog
fox　dog
naïve café Straße ÜBER*
ÜBER~1
中文 漢字
can't stop
wi-fi
wi-fi^2
+wi-fi
-wi-fi
bob@example.com
x:wi-fi
"wi-fi"
tag:C++
tag:C\+\+
(a b)@2
(quick fox dog)@2
fn
fn:x
_id:a
$a:b
a.b:c
a.b.c
AND:x
TO
x TO y
&&
||
a&&b
ANDx
xAND
x:AND
"AND"
x:(AND)
-(-fox)
-(+fox)
+(+fox)
+(-fox)
(-fox) dog
NOT NOT fox
a OR (b AND c) OR NOT d
"a" "b"
a"b"c
a(b)c
a[b TO c]d
a~b~c
a*b~
a*^2
*a*
a:b*c?d
\\
\\\\
a\\b
"a\\"
"a\\b"
'fox'
fox's
running runners
Running*
"running foxes"
""".strip("\n").split("\n")

BOTH += ['""""', '"a""b"']

NINE = r"""
year=2010
n=5
n>5
n>=5
n<1
n<=1
n<\-1
n:>5
n:<=1
author>dave
author>="d e"
author<dave
author<=*
n>x
n=*
n=
>5
a=b=c
a<b<c
(quick fox dog)^2@2
(quick)@1
(a b)@x
(a b)@
(a b)^2
a@b
a<b
a>b AND c
""".strip("\n").split("\n")

LOCALES = {
    "standard@de": [r"n:1.500", r"n:1,5", r"n:[1,5 TO 15]", r"n:[1.5 TO 2]", r"n:1.000.000,25", r"n:1'000", r"n:\-1,5"],
    "standard@fr": [r"n:1,5", r"n:1.5", r"n:1\ 000", "n:1\u202f000", r"n:[0,5 TO 1,5]"],
    "standard@de-CH": [r"n:1.5", "n:1’000", r"n:1'000", r"n:1,5"],
    "standard@hi": [r"n:1,00,000", r"n:१२३", r"n:1.5"],
    "standard@sv": [r"n:\-1", "n:−1", r"n:1E3", r"n:1×10^3", "n:1\u00a0000,5"],
    "standard@ar-EG": [r"n:١٢٣", r"n:١٫٥", r"n:15", r"n:\-1"],
    "standard@pl": [r"n:1,5", r"n:1.5", "n:1\u00a0000"],
}

PIECES = ["fox", "the", "Dog", "5", "1.5", "a*", "b?c", "AND", "OR", "NOT", "+", "-", "!", "(", ")", "\"", "\"x y\"", "~", "~1", "^2", "^0.5", ":", "title:", "n:", "[", "]",
          "{", "}", "TO", "[a TO b]", "{1 TO 2]", "/x.y/", "\\", "\\u0041", " ", " ", " ", " ", "*", "?", "wi-fi", "&&", "||", "é", "漢字", "@", "=", ">", "<", "/", "*:*"]

CLAUSES = ["fox", "the", "\"quick fox\"", "title:dog", "n:5", "n:[1 TO 2]", "wi-fi", "run*", "roam~1", "author:[a TO b]", "*:*", "/a.b/", "(fox dog)", "(the)", "(-fox)", "title:(a b)"]


def odd(generator):
    return "".join(generator.choice(PIECES) for _ in range(generator.randint(1, 8)))


def boolean(generator, depth=0):
    """A query of clauses and operators, mostly a right one."""
    parts = []
    for at in range(generator.randint(1, 4)):
        if at:
            parts.append(generator.choice(["AND", "OR", "", "", "AND NOT", "&&", "||"]))
        sign = generator.choice(["", "", "", "+", "-", "NOT ", "!"])
        inner = generator.choice(CLAUSES) if depth > 2 or generator.random() < 0.7 else "(" + boolean(generator, depth + 1) + ")"
        parts.append(sign + inner + generator.choice(["", "", "", "^2"]))
    return " ".join(part for part in parts if part)


def lines(name):
    generator = random.Random(SEED)
    for text in BOTH:
        yield "query", "standard" if name == "lucene4" else "english", text
    for analyzer in ("english", "keyword", "simple", "french", "german", "cjk"):
        for text in BOTH:
            yield "query", analyzer, text
    if name == "lucene9":
        for text in NINE:
            yield "query", "english", text
        for analyzer, texts in LOCALES.items():
            for text in texts:
                yield "query", analyzer, text
        yield from (("query", "standard@en-US", text) for text in BOTH if text.startswith("n:"))
    for _ in range(700):
        yield "query", "english", odd(generator)
    for _ in range(500):
        yield "query", "english", boolean(generator)
