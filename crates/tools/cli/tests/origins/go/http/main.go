// An origin of Go's net/http: `http [-cert FILE -key FILE] FOLDER`. Prints the port that it listens on.
//
// It serves the site over HTTP/1.1 and HTTP/2 with prior knowledge, or over TLS with the version that ALPN selects.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"

	"apus.test/origins/site"
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
	handler := site.Handler(flag.Arg(0))
	if *cert != "" {
		log.Fatal(http.ServeTLS(listener, handler, *cert, *key))
	}
	log.Fatal(http.Serve(listener, h2c.NewHandler(handler, &http2.Server{})))
}
