/* Hello, world in C++, with lambdas as handlers: `hello-cpp [ADDRESS]`. */
#include <apus.hpp>
#include <atomic>
#include <iostream>
#include <thread>

int main(int argc, char **argv)
try {
	std::atomic<unsigned> visits{0};
	apus::app app;
	app.get("/", [&](apus::request, apus::response response) {
		response.text("Hello, visitor " + std::to_string(++visits) + "!\n");
	});
	app.get("/squares/{n}", [](apus::request request, apus::response response) {
		auto n = request.param<std::uint64_t>("n");
		response.json("{\"square\":" + std::to_string(n * n) + "}");
	});
	app.post("/shout", [](apus::request request, apus::response) {
		request.read_body(1000, [](apus::request asked, apus::response response) {
			response.text(std::string(asked.body()) + "!\n");
		});
	});
	app.get("/later", [](apus::request request, apus::response) {
		std::thread([later = apus::deferred(request)]() mutable {
			later.response().text("later\n");
			later.complete();
		}).detach();
	});
	app.get("/mistake", [](apus::request, apus::response) { throw std::runtime_error("a secret"); });
	app.websocket("/echo", [](apus::websocket socket, std::string_view message, apus_message_kind) { socket.send(message); });
	app.group("/admin")
		.before([](apus::request request, apus::response) { return request.header("authorization") == "Bearer swift" ? 0 : 401; })
		.get("/name", [](apus::request request, apus::response response) {
			response.header("x-client", request.client()).text(std::string(request.query("name").value_or("nobody")) + "\n");
		});
	apus::server server(std::move(app));
	server.listen(argc > 1 ? argv[1] : "127.0.0.1:8080").run();
} catch (const apus::error &error) {
	std::cerr << error.what() << '\n';
	return 1;
}
