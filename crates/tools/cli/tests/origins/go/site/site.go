// Package site has the resources of the origins in Go, which proxy/origins.rs lists, and the files of a folder.
package site

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sort"
)

// Handler serves the files of the folder and the other resources.
func Handler(folder string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(folder)))
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		file, err := os.Open(filepath.Join(folder, "large.bin"))
		if err != nil {
			panic(err)
		}
		defer file.Close()
		io.Copy(w, file)
	})
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/request", request)
	mux.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "content")
		// Without this, the response gets a length, and HTTP/1.1 has no trailers then.
		w.(http.Flusher).Flush()
		w.Header().Set("X-Sum", "7")
	})
	mux.HandleFunc("/sum", sum)
	mux.HandleFunc("/websocket", websocket)
	mux.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		io.WriteString(w, "late\n")
	})
	return mux
}

// Sends the body back: while it arrives over HTTP/2 and 3, and when it is complete over HTTP/1.1, where Go reads the request
// before it responds.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Write(content)
		return
	}
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	buffer := make([]byte, 65536)
	for {
		n, err := r.Body.Read(buffer)
		w.Write(buffer[:n])
		w.(http.Flusher).Flush()
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// Opens a WebSocket and sends all bytes back unchanged. Go has no WebSockets over HTTP/2.
func websocket(w http.ResponseWriter, r *http.Request) {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "only over HTTP/1.1", http.StatusNotImplemented)
		return
	}
	key := r.Header.Get("Sec-WebSocket-Key")
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	connection, buffered, err := hijacker.Hijack()
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
		"Upgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	io.Copy(connection, buffered)
}

// Responds with the length of the body and the trailers that follow it.
func sum(w http.ResponseWriter, r *http.Request) {
	length, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, "%d\n", length)
	lines(w, r.Trailer)
}

func request(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s\nHost: %s\n", r.Method, r.RequestURI, r.Proto, r.Host)
	lines(w, r.Header)
}

func lines(w io.Writer, fields http.Header) {
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, value := range fields[name] {
			fmt.Fprintf(w, "%s: %s\n", name, value)
		}
	}
}
