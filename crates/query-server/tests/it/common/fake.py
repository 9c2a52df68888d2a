"""A query server that misbehaves as it is told. Its functions are lists of words: one is taken for each document, the last
again and again. `DIR/pids` gets the ids of all processes, `DIR/events` what happened."""

import json
import os
import signal
import subprocess
import sys
import time

folder = sys.argv[1]


def note(name, text):
    with open(os.path.join(folder, name), "a") as file:
        file.write(f"{text}\n")


def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def answer(value):
    write(json.dumps(value) + "\n")


def hang():
    while True:
        signal.pause()


def spin():
    while True:
        pass


def map_doc(word, doc):
    rows = [[[doc["_id"], None]]]
    if word == "ok":
        answer(rows)
    elif word == "echo":
        answer([[[doc["_id"], doc]]])
    elif word == "error":
        answer(["error", "map_runtime_error", "it failed"])
    elif word == "forbidden":
        answer({"forbidden": "no"})
    elif word == "fatal":
        answer(["fatal", "fatal_error", "it is over"])
    elif word == "error_object":
        answer({"error": "bad", "reason": "it is bad"})
    elif word == "garbage":
        write("Hello, world!\n")
    elif word == "binary":
        sys.stdout.buffer.write(b"\xff\xfe\x00\n")
        sys.stdout.buffer.flush()
    elif word == "other":
        answer({"rows": []})
    elif word == "more_views":
        answer([[], []])
    elif word == "pairless":
        answer([[1, 2]])
    elif word == "twice":
        write(json.dumps(rows) + "\n" + json.dumps(rows) + "\n")
    elif word == "blank":
        write("\n  \n" + json.dumps(rows) + "\n")
    elif word == "log":
        answer(["log", "before\nit"])
        answer(["log", {"a": 1}])
        answer(rows)
        answer(["log", "after"])
    elif word == "log_flood":
        while True:
            answer(["log", "x" * 1000])
    elif word == "hang":
        hang()
    elif word == "spin":
        spin()
    elif word == "half":
        write('[[["a",')
        hang()
    elif word == "exit":
        os._exit(3)
    elif word == "exit_half":
        write('[[["a",')
        os._exit(0)
    elif word == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "close":
        os.close(1)
        hang()
    elif word == "stderr":
        for _ in range(20):
            sys.stderr.write("complaint " * 10000 + "\n")
        sys.stderr.flush()
        answer(rows)
    elif word == "stderr_flood":
        while True:
            os.write(2, b"complaint\n" * 1000)
    elif word == "close_stderr":
        os.close(2)
        answer(rows)
    elif word == "long":
        answer([[["x" * (100 << 20), None]]])
    elif word == "mib":
        answer([[["x" * (1 << 20), None]]])
    elif word == "endless":
        while True:
            write("[" * (1 << 20))
    elif word == "deep":
        write("[[[" + "[" * 100000 + "]" * 100000 + ",null]]]\n")
    elif word == "nan":
        answer([[[float("nan"), [float("inf"), -float("inf")]]]])
    elif word == "slow":
        # Reads little by little, and answers more than a pipe holds.
        time.sleep(0.002)
        answer([[["y" * 100000, None]]])
    elif word == "children":
        for ignore_output in (False, True):
            silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            child = subprocess.Popen(["sleep", "1000"], **(silent if ignore_output else {}))
            note("pids", child.pid)
        answer(rows)
    elif word == "count":
        # The events show how many were here at the same time.
        note("events", "in")
        time.sleep(0.005)
        note("events", "out")
        answer(rows)
    elif word == "pid":
        answer([[[os.getpid(), None]]])
    else:
        answer(["error", "unknown_word", word])


def main():
    note("pids", os.getpid())
    words, state = [], {"seen": 0, "designs": {}}
    while True:
        line = sys.stdin.readline()
        if not line:
            return
        command = json.loads(line)
        name = command[0]
        if name != "map_doc":
            note("events", " ".join([name] + [arg for arg in command[1:3] if isinstance(arg, str)]))
        if name == "reset":
            if os.path.exists(os.path.join(folder, "refuse_reset")):
                os.remove(os.path.join(folder, "refuse_reset"))
                answer(["error", "no", "no reset today"])
                continue
            note("resets", line.strip())
            words, state["seen"] = [], 0
            answer(True)
        elif name == "add_lib":
            note("libs", line.strip())
            answer(True)
        elif name == "add_fun":
            if command[1] == "bad":
                answer(["error", "compilation_error", "it is bad"])
            elif command[1] == "hang":
                hang()
            else:
                words = command[1].split()
                answer(True)
        elif name == "map_doc":
            word = words[min(state["seen"], len(words) - 1)]
            state["seen"] += 1
            map_doc(word, command[1])
        elif name in ("reduce", "rereduce"):
            source = command[1][0]
            if source == "overflow":
                answer(["error", "reduce_overflow_error", "it grows"])
            elif source == "odd":
                answer([True, [1, 2]])
            elif source == "exit_after_error":
                answer(["error", "some_error", "and good bye"])
                return
            else:
                answer([True, [command[2]]])
        elif command[1] == "new":
            state["designs"][command[2]] = command[3]
            answer(True)
        else:
            design(command, state)


def design(command, state):
    ddoc, path, args = state["designs"][command[1]], command[2], command[3]
    kind = path[0]
    if kind == "validate_doc_update":
        answer(
            {
                "pass": True,
                "one": 1,
                "forbid": {"forbidden": 'no "way"'},
                "login": {"unauthorized": "who?"},
                "error": ["error", "oops", "went wrong"],
            }[args[0]["do"]]
        )
    elif kind == "lists":
        word = path[1]
        answer(["start", ["head\n"], {"headers": {"X": "y"}}])
        while True:
            command = json.loads(sys.stdin.readline())
            if command[0] == "list_end" or word == "short":
                answer(["end", ["tail", 5]])
                return
            if word == "error":
                answer(["error", "list_broke", "in the middle"])
                return
            if word == "odd":
                answer(["what", []])
                return
            answer(["chunks", [command[1]["id"], "é\t"]])
    else:
        answer(["resp", {"ddoc": ddoc, "path": path, "args": args}])


main()
