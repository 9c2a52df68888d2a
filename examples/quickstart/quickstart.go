// S=http://NAME:PASSWORD@127.0.0.1:5984 go run quickstart.go
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
)

type product struct {
	ID    string  `json:"_id"`
	Rev   string  `json:"_rev,omitempty"`
	Price float64 `json:"price"`
}

// request sends a request, reads the response into `into`, and returns the status.
func request(method, path string, body, into any) int {
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			log.Fatal(err)
		}
	}
	// The URL has name and password, which Go sends.
	req, err := http.NewRequest(method, os.Getenv("S")+path, &text)
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	if into != nil {
		if err := json.NewDecoder(response.Body).Decode(into); err != nil {
			log.Fatal(err)
		}
	}
	return response.StatusCode
}

func main() {
	// A database, and three documents.
	fmt.Println("database:", request("PUT", "/quickstart", nil, nil))
	docs := map[string]any{"docs": []product{
		{ID: "tea", Price: 4.5},
		{ID: "milk", Price: 1.25},
		{ID: "pot", Price: 24.9},
	}}
	fmt.Println("documents:", request("POST", "/quickstart/_bulk_docs", docs, nil))

	// An update has the revision that it replaces: the one that was read.
	var tea product
	request("GET", "/quickstart/tea", nil, &tea)
	tea.Price = 5
	fmt.Println("update:", request("PUT", "/quickstart/tea", tea, nil))

	// That revision is no longer the latest: somebody else was faster.
	tea.Price = 6
	fmt.Println("conflict:", request("PUT", "/quickstart/tea", tea, nil))

	// A query.
	query := map[string]any{
		"selector": map[string]any{"price": map[string]any{"$lt": 10}},
		"fields":   []string{"_id"},
	}
	var found struct{ Docs []product }
	request("POST", "/quickstart/_find", query, &found)
	ids := []string{}
	for _, doc := range found.Docs {
		ids = append(ids, doc.ID)
	}
	fmt.Println("found:", strings.Join(ids, " "))

	request("DELETE", "/quickstart", nil, nil)
}
