// An origin of Go's net/http: `http [-cert FILE -key FILE] FOLDER`. Prints the port that it listens on.
//
// It serves the files of the folder, and the resources that proxy/origins.rs lists: over HTTP/1.1 and HTTP/2 with prior
// knowledge, or over TLS with the version that ALPN selects.
package main

import (
	"crypto/sha1"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
)

func main() {
	cert := flag.String("cert", "", "the certificate")
	key := flag.String("key", "", "its key")
	flag.Parse()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	handler := site(flag.Arg(0))
	if *cert != "" {
		log.Fatal(http.ServeTLS(listener, handler, *cert, *key))
	}
	log.Fatal(http.Serve(listener, h2c.NewHandler(handler, &http2.Server{})))
}

func site(folder string) http.Handler {
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

// Sends the body back: while it arrives over HTTP/2, and when it is complete over HTTP/1.1, where Go reads the request
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
