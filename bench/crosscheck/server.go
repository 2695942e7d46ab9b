// A server with a known schedule, for load generators that are compared with each other: the delay of a response, or a pause of one
// second, or every thousandth response with another status.
//
//	server CERTIFICATE KEY
//
// It listens over HTTP/1.1 in clear text, and over HTTP/1.1 and HTTP/2 under TLS, and prints the three addresses, one a line.
//
//	/delays  of a hundred responses, 84 come after 20 ms, 14 after 40 ms, and 2 after 80 ms
//	/pause   no response for a second, from one second after the hundredth request on; the first ones of a generator may be late
//	/errors  each thousandth response is a 500
//	/reset   counts anew; the response is the number of requests before
package main

import (
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

var (
	requests  atomic.Int64
	lock      sync.Mutex
	hundredth time.Time
)

func delay(number int64) time.Duration {
	switch place := number % 100; {
	case place == 25 || place == 75:
		return 80 * time.Millisecond
	case place%7 == 3:
		return 40 * time.Millisecond
	default:
		return 20 * time.Millisecond
	}
}

// pause returns what is left of the pause when the request with this number comes.
func pause(number int64) time.Duration {
	lock.Lock()
	defer lock.Unlock()
	now := time.Now()
	if number == 100 {
		hundredth = now
	}
	if hundredth.IsZero() || now.Sub(hundredth) < time.Second {
		return 0
	}
	return 2*time.Second - now.Sub(hundredth)
}

func main() {
	handler := http.NewServeMux()
	handler.HandleFunc("/delays", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(delay(requests.Add(1) - 1))
		fmt.Fprint(w, "x")
	})
	handler.HandleFunc("/pause", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(pause(requests.Add(1)))
		fmt.Fprint(w, "x")
	})
	handler.HandleFunc("/errors", func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1)%1000 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, "x")
	})
	handler.HandleFunc("/reset", func(w http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		hundredth = time.Time{}
		fmt.Fprint(w, requests.Swap(0))
	})

	certificate, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	failed := make(chan error)
	for _, protocol := range []string{"", "http/1.1", "h2"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		server := &http.Server{Handler: handler, Protocols: new(http.Protocols), ErrorLog: log.New(os.Stderr, "", 0)}
		server.Protocols.SetHTTP1(protocol != "h2")
		server.Protocols.SetHTTP2(protocol == "h2")
		scheme := "http"
		if protocol != "" {
			scheme = "https"
			server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{protocol}}
		}
		fmt.Printf("%s://%s\n", scheme, listener.Addr())
		go func() {
			if scheme == "https" {
				failed <- server.ServeTLS(listener, "", "")
			} else {
				failed <- server.Serve(listener)
			}
		}()
	}
	log.Fatal(<-failed)
}
