// A client of HTTP/3 with quic-go: `quic-go PORT CA WHAT...`. Each WHAT is a key of `checks`; the program succeeds only if
// all of them pass. With `WHAT@2` it speaks version 2 of QUIC (RFC 9369). And an origin: `quic-go serve CERT KEY FOLDER [retry]`.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

var (
	server, url string
	roots       = x509.NewCertPool()
	versions    []quic.Version
)

var checks = map[string]func(context.Context) error{
	"handshake":  handshake,
	"resumption": resumption,
	"early_data": earlyData,
	"retry":      retry,
	"key_update": keyUpdate,
	"migration":  migration,
	"download":   download,
	"upload":     upload,
	"parallel":   parallel,
	"reset":      reset,
}

func main() {
	var err error
	if os.Args[1] == "serve" {
		err = serve(os.Args[2], os.Args[3], os.Args[4], len(os.Args) > 5)
	} else {
		err = run(os.Args[1], os.Args[2], os.Args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(port, authority string, names []string) error {
	server, url = "127.0.0.1:"+port, "https://localhost:"+port
	pem, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	roots.AppendCertsFromPEM(pem)
	for _, name := range names {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		what, version, _ := strings.Cut(name, "@")
		versions = nil
		if version == "2" {
			versions = []quic.Version{quic.Version2}
		}
		err := checks[what](ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Println(name)
	}
	return nil
}

// What connections after each other share.
type client struct {
	tls    *tls.Config
	tokens quic.TokenStore
}

func newClient() *client {
	tls := &tls.Config{
		RootCAs:            roots,
		ServerName:         "localhost",
		NextProtos:         []string{http3.NextProtoH3},
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
	return &client{tls, quic.NewLRUTokenStore(1, 4)}
}

type connection struct {
	quic   *quic.Conn
	http   *http3.ClientConn
	events *events
}

// Opens a connection, which may be complete later if it has a session of an earlier one.
func (client *client) open(ctx context.Context) (*connection, error) {
	events := &events{}
	config := &quic.Config{
		HandshakeIdleTimeout: time.Minute,
		MaxIdleTimeout:       2 * time.Minute,
		TokenStore:           client.tokens,
		Versions:             versions,
		Tracer: func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace {
			return events
		},
	}
	address, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport()
	if err != nil {
		return nil, err
	}
	conn, err := transport.DialEarly(ctx, address, client.tls, config)
	if err != nil {
		return nil, err
	}
	return &connection{conn, (&http3.Transport{}).NewClientConn(conn), events}, nil
}

// At a port of its own, with connection IDs, which a migration needs.
func newTransport() (*quic.Transport, error) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	return &quic.Transport{Conn: socket}, err
}

func (connection *connection) close() {
	connection.http.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
}

// Sends a request, and returns its status and the hash of its body.
func (connection *connection) send(ctx context.Context, method, path string, body io.Reader) (int, sum, error) {
	request, err := http.NewRequestWithContext(ctx, method, url+path, body)
	if err != nil {
		return 0, sum{}, err
	}
	response, err := connection.http.RoundTrip(request)
	if err != nil {
		return 0, sum{}, err
	}
	defer response.Body.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, response.Body); err != nil {
		return 0, sum{}, err
	}
	return response.StatusCode, sum(hash.Sum(nil)), nil
}

// Sends a request whose response has this content.
func (connection *connection) expect(ctx context.Context, method, path string, body io.Reader, content []byte) error {
	status, found, err := connection.send(ctx, method, path, body)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("%s %s: %d", method, path, status)
	case found != sha256.Sum256(content):
		return fmt.Errorf("%s %s: another content", method, path)
	}
	return nil
}

func (connection *connection) getSmall(ctx context.Context) error {
	return connection.expect(ctx, http.MethodGet, "/small.txt", nil, []byte("small\n"))
}

type sum = [sha256.Size]byte

// The content of the large files: lines of eight bytes with their numbers.
func content(length int) []byte {
	var content bytes.Buffer
	for number := range length / 8 {
		fmt.Fprintf(&content, "%07d\n", number)
	}
	return content.Bytes()
}

// The events of a connection that checks ask for.
type events struct {
	mutex      sync.Mutex
	retries    int
	keyUpdates int
}

func (events *events) AddProducer() qlogwriter.Recorder { return events }
func (events *events) SupportsSchemas(string) bool      { return true }
func (events *events) Close() error                     { return nil }

func (events *events) RecordEvent(event qlogwriter.Event) {
	events.mutex.Lock()
	defer events.mutex.Unlock()
	switch event := event.(type) {
	case qlog.PacketReceived:
		if event.Header.PacketType == qlog.PacketTypeRetry {
			events.retries++
		}
	case qlog.KeyUpdated:
		// The server has followed when its keys have changed.
		if event.KeyType == qlog.KeyTypeServer1RTT && event.Trigger != qlog.KeyUpdateTLS {
			events.keyUpdates++
		}
	}
}

func (events *events) counts() (retries, keyUpdates int) {
	events.mutex.Lock()
	defer events.mutex.Unlock()
	return events.retries, events.keyUpdates
}

func handshake(ctx context.Context) error {
	connection, err := newClient().open(ctx)
	if err != nil {
		return err
	}
	defer connection.close()
	if err := connection.getSmall(ctx); err != nil {
		return err
	}
	if versions != nil && connection.quic.ConnectionState().Version != versions[0] {
		return fmt.Errorf("version %s", connection.quic.ConnectionState().Version)
	}
	if protocol := connection.quic.ConnectionState().TLS.NegotiatedProtocol; protocol != "h3" {
		return fmt.Errorf("protocol %q", protocol)
	}
	status, _, err := connection.send(ctx, http.MethodGet, "/none", nil)
	if err == nil && status != http.StatusNotFound {
		err = fmt.Errorf("status %d", status)
	}
	return err
}

// A client with a session.
func known(ctx context.Context) (*client, error) {
	sessions := &sessions{ClientSessionCache: tls.NewLRUClientSessionCache(1), stored: make(chan struct{}, 16)}
	client := newClient()
	client.tls.ClientSessionCache = sessions
	connection, err := client.open(ctx)
	if err != nil {
		return nil, err
	}
	defer connection.close()
	if err := connection.getSmall(ctx); err != nil {
		return nil, err
	}
	select {
	case <-sessions.stored:
		return client, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no session")
	}
}

// Tells when a session was stored.
type sessions struct {
	tls.ClientSessionCache
	stored chan struct{}
}

func (sessions *sessions) Put(key string, state *tls.ClientSessionState) {
	sessions.ClientSessionCache.Put(key, state)
	if state != nil {
		select {
		case sessions.stored <- struct{}{}:
		default:
		}
	}
}

func resumption(ctx context.Context) error {
	client, err := known(ctx)
	if err != nil {
		return err
	}
	connection, err := client.open(ctx)
	if err != nil {
		return err
	}
	defer connection.close()
	if err := connection.getSmall(ctx); err != nil {
		return err
	}
	if !connection.quic.ConnectionState().TLS.DidResume {
		return fmt.Errorf("a full handshake")
	}
	return nil
}

func earlyData(ctx context.Context) error {
	client, err := known(ctx)
	if err != nil {
		return err
	}
	connection, err := client.open(ctx)
	if err != nil {
		return err
	}
	defer connection.close()
	if err := connection.expect(ctx, http3.MethodGet0RTT, "/small.txt", nil, []byte("small\n")); err != nil {
		return err
	}
	<-connection.quic.HandshakeComplete()
	if !connection.quic.ConnectionState().Used0RTT {
		return fmt.Errorf("early data was not accepted")
	}
	body := []byte("body")
	return connection.expect(ctx, http.MethodPost, "/echo", bytes.NewReader(body), body)
}

func retry(ctx context.Context) error {
	client := newClient()
	// The token of the first connection proves the address of the second one (RFC 9000 section 8.1.3).
	for _, expected := range []int{1, 0} {
		connection, err := client.open(ctx)
		if err != nil {
			return err
		}
		defer connection.close()
		if err := connection.getSmall(ctx); err != nil {
			return err
		}
		if retries, _ := connection.events.counts(); retries != expected {
			return fmt.Errorf("%d Retry packets instead of %d", retries, expected)
		}
	}
	return nil
}

// quic-go updates its keys after a hundred packets.
func keyUpdate(ctx context.Context) error {
	connection, err := newClient().open(ctx)
	if err != nil {
		return err
	}
	defer connection.close()
	large := content(1 << 20)
	for updates := 0; updates == 0; _, updates = connection.events.counts() {
		if err := connection.expect(ctx, http.MethodGet, "/large-1.bin", nil, large); err != nil {
			return err
		}
	}
	return connection.expect(ctx, http.MethodPost, "/echo", bytes.NewReader(large), large)
}

func migration(ctx context.Context) error {
	connection, err := newClient().open(ctx)
	if err != nil {
		return err
	}
	defer connection.close()
	if err := connection.getSmall(ctx); err != nil {
		return err
	}
	downloaded := make(chan error, 1)
	go func() {
		downloaded <- connection.expect(ctx, http.MethodGet, "/large-10.bin", nil, content(10<<20))
	}()
	for range 2 {
		transport, err := newTransport()
		if err != nil {
			return err
		}
		path, err := connection.quic.AddPath(transport)
		if err != nil {
			return err
		}
		if err := path.Probe(ctx); err != nil {
			return fmt.Errorf("the path is not valid: %w", err)
		}
		if err := path.Switch(); err != nil {
			return err
		}
		if err := connection.getSmall(ctx); err != nil {
			return err
		}
		if found := connection.quic.LocalAddr().String(); found != transport.Conn.LocalAddr().String() {
			return fmt.Errorf("still at %s", found)
		}
	}
	if err := <-downloaded; err != nil {
		return err
	}
	return connection.getSmall(ctx)
}

func download(ctx context.Context) error {
	connection, err := newClient().open(ctx)
	if err != nil {
		return err
	}
	defer connection.close()
	return connection.expect(ctx, http.MethodGet, "/large-100.bin", nil, content(100<<20))
}

func upload(ctx context.Context) error {
	connection, err := newClient().open(ctx)
	if err != nil {
		return err
	}
	defer connection.close()
	body := content(20 << 20)
	// Without a length, since its type is unknown, and with one.
	for _, reader := range []io.Reader{io.MultiReader(bytes.NewReader(body)), bytes.NewReader(body)} {
		if err := connection.expect(ctx, http.MethodPost, "/echo", reader, body); err != nil {
			return err
		}
	}
	return nil
}

// The server allows a hundred at a time; the others wait for it.
func parallel(ctx context.Context) error {
	connection, err := newClient().open(ctx)
	if err != nil {
		return err
	}
	defer connection.close()
	results := make(chan error, 200)
	for index := range cap(results) {
		go func() {
			size := 1 + index*10
			if index%10 == 9 {
				size = 1 + index*500
			}
			body := content(8 * size)
			results <- connection.expect(ctx, http.MethodPost, "/echo", bytes.NewReader(body), body)
		}()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

// Goes on, after a line of its input, with a connection that the server does not know any more, and gets a stateless reset (RFC
// 9000 section 10.3).
func reset(ctx context.Context) error {
	client := newClient()
	connection, err := client.open(ctx)
	if err != nil {
		return err
	}
	if err := connection.getSmall(ctx); err != nil {
		return err
	}
	fmt.Println("connected")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	go connection.getSmall(ctx)
	select {
	case <-connection.quic.Context().Done():
	case <-time.After(time.Minute):
		return errors.New("the connection goes on")
	}
	var reset *quic.StatelessResetError
	if cause := context.Cause(connection.quic.Context()); !errors.As(cause, &reset) {
		return fmt.Errorf("no stateless reset: %w", cause)
	}
	return nil
}
