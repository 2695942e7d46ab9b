// The interoperability tests of the gRPC project, server and client:
//
//	grpc [-cert FILE -key FILE] serve          prints the port that it listens on
//	grpc [-ca FILE] ask ADDRESS CASE...        succeeds only if every case passes
//
// The cases are described in grpc/doc/interop-test-descriptions.md of that project. `streams` is not among them: it keeps
// a stream open and sends each line that it reads over it, until its input ends.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

var (
	cert = flag.String("cert", "", "the server's certificate")
	key  = flag.String("key", "", "its key")
	ca   = flag.String("ca", "", "whom the client trusts; without it, it does not use TLS")
)

func main() {
	flag.Parse()
	switch flag.Arg(0) {
	case "serve":
		serve()
	case "ask":
		ask(flag.Arg(1), flag.Args()[2:])
	default:
		log.Fatal("serve or ask?")
	}
}

func serve() {
	var options []grpc.ServerOption
	if *cert != "" {
		transport, err := credentials.NewServerTLSFromFile(*cert, *key)
		if err != nil {
			log.Fatal(err)
		}
		options = append(options, grpc.Creds(transport))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(options...)
	pb.RegisterTestServiceServer(server, interop.NewTestServer())
	healthpb.RegisterHealthServer(server, health.NewServer())
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(server.Serve(listener))
}

func ask(address string, cases []string) {
	transport := insecure.NewCredentials()
	if *ca != "" {
		var err error
		if transport, err = credentials.NewClientTLSFromFile(*ca, "localhost"); err != nil {
			log.Fatal(err)
		}
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := pb.NewTestServiceClient(connection)
	for _, name := range cases {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		run(ctx, name, connection, client)
		cancel()
		fmt.Println("passed", name)
	}
}

// Each function of the project ends the process if a check fails.
func run(ctx context.Context, name string, connection *grpc.ClientConn, client pb.TestServiceClient) {
	switch name {
	case "empty_unary":
		interop.DoEmptyUnaryCall(ctx, client)
	case "large_unary":
		interop.DoLargeUnaryCall(ctx, client)
	case "client_streaming":
		interop.DoClientStreaming(ctx, client)
	case "server_streaming":
		interop.DoServerStreaming(ctx, client)
	case "ping_pong":
		interop.DoPingPong(ctx, client)
	case "empty_stream":
		interop.DoEmptyStream(ctx, client)
	case "timeout_on_sleeping_server":
		interop.DoTimeoutOnSleepingServer(ctx, client)
	case "cancel_after_begin":
		interop.DoCancelAfterBegin(ctx, client)
	case "cancel_after_first_response":
		interop.DoCancelAfterFirstResponse(ctx, client)
	case "custom_metadata":
		interop.DoCustomMetadata(ctx, client)
	case "status_code_and_message":
		interop.DoStatusCodeAndMessage(ctx, client)
	case "special_status_message":
		interop.DoSpecialStatusMessage(ctx, client)
	case "unimplemented_method":
		interop.DoUnimplementedMethod(ctx, connection)
	case "unimplemented_service":
		interop.DoUnimplementedService(ctx, pb.NewUnimplementedServiceClient(connection))
	case "streams":
		streams(ctx, client)
	default:
		log.Fatalf("%s is no case", name)
	}
}

func streams(ctx context.Context, client pb.TestServiceClient) {
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		log.Fatal(err)
	}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		request := &pb.StreamingOutputCallRequest{
			ResponseParameters: []*pb.ResponseParameters{{Size: 1000}},
			Payload:            &pb.Payload{Body: input.Bytes()},
		}
		if err := stream.Send(request); err != nil {
			log.Fatal(err)
		}
		reply, err := stream.Recv()
		if err != nil || len(reply.Payload.Body) != 1000 {
			log.Fatal("no whole reply: ", err)
		}
		fmt.Println(input.Text())
	}
	stream.CloseSend()
	if _, err := stream.Recv(); err != io.EOF {
		log.Fatal("the stream did not end well: ", err)
	}
}
