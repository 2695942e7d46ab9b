// The application with net/http: nethttp PORT.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// What the client reads, as a middleware finds out.
type languageKey struct{}

func language(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found := "en"
		if strings.HasPrefix(r.Header.Get("Accept-Language"), "zh") {
			found = "zh"
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), languageKey{}, found)))
	})
}

func servedBy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Served-By", "bench")
		next.ServeHTTP(w, r)
	})
}

func hello(w http.ResponseWriter, r *http.Request) {
	format := "Hello, %s!"
	if r.Context().Value(languageKey{}) == "zh" {
		format = "你好，%s！"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, format, r.PathValue("name"))
}

type swift struct {
	Id       uint32 `json:"id"`
	Name     string `json:"name"`
	Language string `json:"language"`
}

func asJson(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 32)
	if err != nil {
		http.Error(w, "no number", http.StatusBadRequest)
		return
	}
	content, err := json.Marshal(swift{uint32(id), "Apus apus", r.Context().Value(languageKey{}).(string)})
	if err != nil {
		http.Error(w, "no JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(content)
}

func main() {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /hello/{name}", hello)
	routes.HandleFunc("GET /json/{id}", asJson)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], language(servedBy(routes))))
}
