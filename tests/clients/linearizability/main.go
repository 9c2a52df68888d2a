// Checks whether reads and updates of documents, as clients of a cluster saw them, are linearizable.
//
// usage: linearizability FOLDER < HISTORY
//
// HISTORY is a line of JSON per operation (the type operation). Every document is a register of its own that holds the value that
// was written last; "" is no document. An update names the value that it replaces, by the revision that goes with it; a write replaces
// any. Says how
// many operations were checked; for a document whose operations are not linearizable a page to look at is put into FOLDER, and
// the exit code is 1.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// At most so long for one document.
const timeMax = 60 * time.Second

type operation struct {
	Client   int    `json:"client"`
	Document string `json:"document"`
	// "read", "update" or "write".
	Kind string `json:"kind"`
	// Of an update: what it replaces, and by what.
	Old string `json:"old"`
	New string `json:"new"`
	// Of a read.
	Value string `json:"value"`
	// Of a write "done", of an update also "conflict"; of both "maybe" when it may still happen at any time, or never.
	Outcome string `json:"outcome"`
	// Nanoseconds of one clock.
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

var register = porcupine.Model{
	Init: func() interface{} { return "" },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		held, op := state.(string), input.(operation)
		replaces := held == op.Old
		switch {
		case op.Kind == "read":
			return held == op.Value, held
		case op.Kind == "write":
			// One of unknown outcome may be after everything else.
			return true, op.New
		case op.Outcome == "conflict":
			return !replaces, held
		case replaces:
			return true, op.New
		default:
			return op.Outcome == "maybe", held
		}
	},
	DescribeOperation: func(input, _ interface{}) string {
		op := input.(operation)
		if op.Kind == "read" {
			return fmt.Sprintf("read %q", op.Value)
		}
		if op.Kind == "write" {
			return fmt.Sprintf("%q: %s", op.New, op.Outcome)
		}
		return fmt.Sprintf("%q -> %q: %s", op.Old, op.New, op.Outcome)
	},
}

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: linearizability FOLDER < HISTORY"))
	}
	histories, count, err := read()
	if err != nil {
		fail(err)
	}
	documents := make([]string, 0, len(histories))
	for document := range histories {
		documents = append(documents, document)
	}
	sort.Strings(documents)
	wrong := 0
	for _, document := range documents {
		result, info := porcupine.CheckOperationsVerbose(register, histories[document], timeMax)
		if result == porcupine.Ok {
			continue
		}
		wrong++
		page := filepath.Join(os.Args[1], document+".html")
		if err := porcupine.VisualizePath(register, info, page); err != nil {
			fail(err)
		}
		fmt.Printf("%s: %s (%d operations), see %s\n", document, result, len(histories[document]), page)
	}
	fmt.Printf("%d operations of %d documents, %d of these wrong\n", count, len(documents), wrong)
	if wrong > 0 {
		os.Exit(1)
	}
}

func read() (map[string][]porcupine.Operation, int, error) {
	histories := map[string][]porcupine.Operation{}
	count := 0
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			return nil, 0, fmt.Errorf("operation %d: %w", count+1, err)
		}
		until := op.To
		if op.Outcome == "maybe" {
			until = math.MaxInt64
		}
		histories[op.Document] = append(histories[op.Document], porcupine.Operation{
			ClientId: op.Client, Input: op, Call: op.From, Return: until,
		})
		count++
	}
	return histories, count, lines.Err()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "linearizability:", err)
	os.Exit(2)
}
