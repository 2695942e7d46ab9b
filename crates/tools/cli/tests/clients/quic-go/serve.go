package main

import (
	"crypto/tls"
	"fmt"
	"net"

	"apus.test/origins/site"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Serves the site of the origins over HTTP/3, and prints the port. With `retry`, every client proves its address first.
func serve(certificate, key, folder string, retry bool) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: socket, VerifySourceAddress: func(net.Addr) bool { return retry }}
	settings := http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}})
	listener, err := transport.ListenEarly(settings, &quic.Config{Allow0RTT: true})
	if err != nil {
		return err
	}
	fmt.Println(socket.LocalAddr().(*net.UDPAddr).Port)
	server := http3.Server{Handler: site.Handler(folder)}
	return server.ServeListener(listener)
}
