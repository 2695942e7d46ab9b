/* apus.hpp: libapus for C++17: objects that free themselves, lambdas as handlers, std::string_view, exceptions.
 *
 * A layer of headers alone on apus.h, whose rules hold here too; both can be mixed: `get()` of an object is its handle of apus.h.
 *
 * - app, server, service, upstream, tls, deferred, writer, event_stream and worker own an object: they are moved, not copied, and
 *   free it. request, response, routes and websocket are views, as valid as apus.h says.
 * - A call that fails throws apus::error, except those that a slow or absent client makes fail: they return the status.
 * - A handler is a function object `(request, response)` that returns void, or an int as apus_handler does. An exception that it
 *   throws becomes a response with status 500, whose text is not sent; apus::http_error has a status of its own.
 * - Views of strings that requests return are valid until the response.
 */
#ifndef APUS_HPP
#define APUS_HPP

#include <apus.h>

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace apus {

/** A call that failed; what() says what was expected, what came, and what to do. */
class error : public std::runtime_error {
public:
	error(apus_status status, const std::string &text) : std::runtime_error(text), status_(status) {}
	apus_status status() const noexcept { return status_; }

private:
	apus_status status_;
};

/** Thrown by a handler: the response is an error response with this status (400 to 599). */
class http_error : public std::exception {
public:
	explicit http_error(int status) noexcept : status_(status) {}
	int status() const noexcept { return status_; }
	const char *what() const noexcept override { return "an error response"; }

private:
	int status_;
};

namespace detail {

inline void check(apus_status status)
{
	if (status != APUS_OK)
		throw error(status, apus_last_error());
}

template <typename T> T *check(T *object)
{
	if (!object)
		throw error(apus_last_error_parts(nullptr, nullptr, nullptr), apus_last_error());
	return object;
}

inline std::string_view view(apus_str text) noexcept
{
	return text.data ? std::string_view(text.data, text.len) : std::string_view();
}

inline std::optional<std::string_view> optional_view(apus_str text) noexcept
{
	if (!text.data)
		return std::nullopt;
	return std::string_view(text.data, text.len);
}

template <typename T, void (*release)(T *)> struct deleter {
	void operator()(T *object) const noexcept { release(object); }
};

template <typename T, void (*release)(T *)> using owned = std::unique_ptr<T, deleter<T, release>>;

/** Calls a handler; what it throws is a status. */
template <typename Call> int guarded(Call &&call) noexcept
{
	try {
		if constexpr (std::is_void_v<decltype(call())>) {
			call();
			return 0;
		} else {
			return call();
		}
	} catch (const http_error &error) {
		return error.status();
	} catch (...) {
		return 500;
	}
}

template <typename F> void destroy(void *function)
{
	delete static_cast<F *>(function);
}

} // namespace detail

/** The version of the library. */
inline std::string_view version() { return apus_version(); }

/** A request, as long as it is valid. */
class request {
public:
	explicit request(apus_request *handle) noexcept : handle_(handle) {}
	apus_request *get() const noexcept { return handle_; }

	std::string_view method() const noexcept { return detail::view(apus_request_method(handle_)); }
	std::string_view path() const noexcept { return detail::view(apus_request_path(handle_)); }
	std::string_view host() const noexcept { return detail::view(apus_request_host(handle_)); }
	std::string_view scheme() const noexcept { return detail::view(apus_request_scheme(handle_)); }
	std::string_view client() const noexcept { return detail::view(apus_request_client(handle_)); }
	apus_http_version version() const noexcept { return apus_request_version(handle_); }
	/** The whole body, in the function that read_body() calls. */
	std::string_view body() const noexcept { return detail::view(apus_request_body(handle_)); }

	/** A parameter of the path, decoded. Empty if the route has none of that name. */
	std::string_view param(const std::string &name) const noexcept
	{
		return detail::view(apus_request_param(handle_, name.c_str()));
	}

	/** A parameter of the path as a number. Another text is a 404. */
	template <typename Number> Number param(const std::string &name) const
	{
		static_assert(std::is_same_v<Number, std::uint64_t> || std::is_same_v<Number, std::int64_t>, "std::uint64_t or std::int64_t");
		Number value{};
		apus_status status;
		if constexpr (std::is_signed_v<Number>)
			status = apus_request_param_i64(handle_, name.c_str(), &value);
		else
			status = apus_request_param_u64(handle_, name.c_str(), &value);
		if (status != APUS_OK)
			throw http_error(404);
		return value;
	}

	std::optional<std::string_view> query(const std::string &name) const noexcept
	{
		return detail::optional_view(apus_request_query_value(handle_, name.c_str()));
	}
	std::optional<std::string_view> header(const std::string &name) const noexcept
	{
		return detail::optional_view(apus_request_header(handle_, name.c_str()));
	}
	std::optional<std::string_view> cookie(const std::string &name) const noexcept
	{
		return detail::optional_view(apus_request_cookie(handle_, name.c_str()));
	}

	/** Calls `function(name, value)` with each field. */
	template <typename F> void each_header(F &&function) const
	{
		std::exception_ptr thrown;
		auto call = [&](std::string_view name, std::string_view value) {
			try {
				function(name, value);
				return true;
			} catch (...) {
				thrown = std::current_exception();
				return false;
			}
		};
		apus_request_each_header(
			handle_,
			[](apus_str name, apus_str value, void *user) {
				return (*static_cast<decltype(call) *>(user))(detail::view(name), detail::view(value));
			},
			&call);
		if (thrown)
			std::rethrow_exception(thrown);
	}

	/** Reads the whole body, at most `limit` bytes, and then calls `then(request, response)` as the handler. */
	template <typename F> void read_body(std::size_t limit, F then) const;

private:
	apus_request *handle_;
};

/** The body of a response that is written in parts. */
class writer {
public:
	explicit writer(apus_writer *handle) noexcept : handle_(handle) {}
	/** APUS_FULL: nothing was taken, the client is slow. APUS_CLOSED: it is gone. */
	apus_status write(std::string_view bytes) { return apus_writer_write(handle_.get(), bytes.data(), bytes.size()); }
	bool is_closed() const noexcept { return apus_writer_is_closed(handle_.get()); }
	/** Ends the body as incomplete; a writer that is destroyed ends it as complete. */
	void abort() noexcept { apus_writer_abort(handle_.release()); }
	apus_writer *get() const noexcept { return handle_.get(); }
	apus_writer *release() noexcept { return handle_.release(); }

private:
	detail::owned<apus_writer, apus_writer_finish> handle_;
};

/** The body of a response with events. */
class event_stream {
public:
	explicit event_stream(apus_sse *handle) noexcept : handle_(handle) {}
	/** Sends an event. APUS_FULL: the client is slow. APUS_CLOSED: it is gone. */
	apus_status send(std::string_view data, const char *event = nullptr, const char *id = nullptr)
	{
		return apus_sse_send(handle_.get(), event, id, data.data(), data.size());
	}
	bool is_closed() const noexcept { return apus_sse_is_closed(handle_.get()); }
	apus_sse *get() const noexcept { return handle_.get(); }

private:
	detail::owned<apus_sse, apus_sse_close> handle_;
};

/** A response, as long as it is valid. */
class response {
public:
	explicit response(apus_response *handle) noexcept : handle_(handle) {}
	apus_response *get() const noexcept { return handle_; }

	int status() const noexcept { return apus_response_status(handle_); }
	response &status(int status) { return checked(apus_response_set_status(handle_, status)); }
	response &header(const std::string &name, std::string_view value)
	{
		return checked(apus_response_set_header(handle_, name.c_str(), value.data(), value.size()));
	}
	response &add_header(const std::string &name, std::string_view value)
	{
		return checked(apus_response_add_header(handle_, name.c_str(), value.data(), value.size()));
	}
	response &text(std::string_view text) { return checked(apus_response_text(handle_, text.data(), text.size())); }
	response &html(std::string_view html) { return checked(apus_response_html(handle_, html.data(), html.size())); }
	response &json(std::string_view json) { return checked(apus_response_json(handle_, json.data(), json.size())); }
	response &body(std::string_view bytes) { return checked(apus_response_body(handle_, bytes.data(), bytes.size())); }
	/** Takes the string over, without a copy of its bytes. */
	response &body(std::string &&bytes)
	{
		auto *owner = new std::string(std::move(bytes));
		return checked(apus_response_body_owned(handle_, owner->data(), owner->size(), detail::destroy<std::string>, owner));
	}
	response &body(const char *text) { return body(std::string_view(text)); }
	response &redirect(const std::string &location, int status = 303)
	{
		return checked(apus_response_redirect(handle_, status, location.c_str()));
	}
	/** A body that is written in parts, of which at most `limit` bytes wait for the client (0: 64 KiB). */
	writer stream(std::size_t limit = 0) { return writer(detail::check(apus_response_stream(handle_, limit))); }
	event_stream events() { return event_stream(detail::check(apus_response_sse(handle_))); }

private:
	response &checked(apus_status status)
	{
		detail::check(status);
		return *this;
	}

	apus_response *handle_;
};

template <typename F> void request::read_body(std::size_t limit, F then) const
{
	auto function = std::make_unique<F>(std::move(then));
	detail::check(apus_request_read_body(
		handle_, limit,
		[](apus_request *handle, apus_response *filled, void *user) {
			apus::request request(handle);
			apus::response response(filled);
			return detail::guarded([&] { return (*static_cast<F *>(user))(request, response); });
		},
		function.get()));
	/* Freed when the response has ended, also if the body never comes. */
	apus_request_on_done(handle_, [](apus_outcome, void *user) { delete static_cast<F *>(user); }, function.release());
}

/** A request whose response comes later, from any thread. One that is destroyed is completed with 500. */
class deferred {
public:
	/** Takes a request out of its handler. */
	explicit deferred(const apus::request &request) : handle_(detail::check(apus_defer(request.get()))) {}
	deferred(deferred &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
	deferred &operator=(deferred &&other) noexcept
	{
		std::swap(handle_, other.handle_);
		return *this;
	}
	deferred(const deferred &) = delete;
	deferred &operator=(const deferred &) = delete;
	~deferred()
	{
		if (handle_)
			apus_complete(handle_, 500);
	}

	apus::request request() const noexcept { return apus::request(apus_deferred_request(handle_)); }
	apus::response response() const noexcept { return apus::response(apus_deferred_response(handle_)); }
	bool is_cancelled() const noexcept { return apus_deferred_is_cancelled(handle_); }
	/** Sends the response. APUS_CLOSED: the client is gone. */
	apus_status complete(int result = 0) noexcept { return apus_complete(std::exchange(handle_, nullptr), result); }
	apus_deferred *get() const noexcept { return handle_; }

private:
	apus_deferred *handle_;
};

/** A WebSocket, on its worker. */
class websocket {
public:
	explicit websocket(apus_websocket *handle) noexcept : handle_(handle) {}
	apus_websocket *get() const noexcept { return handle_; }
	std::uint64_t id() const noexcept { return apus_websocket_id(handle_); }
	/** APUS_FULL: the client is slow. APUS_CLOSED: it is gone. */
	apus_status send(std::string_view text)
	{
		return apus_websocket_send(handle_, APUS_MESSAGE_TEXT, text.data(), text.size());
	}
	apus_status send_binary(std::string_view bytes)
	{
		return apus_websocket_send(handle_, APUS_MESSAGE_BINARY, bytes.data(), bytes.size());
	}
	apus_status close(int code = 1000, const char *reason = nullptr) { return apus_websocket_close(handle_, code, reason); }

private:
	apus_websocket *handle_;
};

/** A service of the engine, to be mounted. */
class service {
public:
	explicit service(apus_service *handle) : handle_(detail::check(handle)) {}
	apus_service *get() const noexcept { return handle_.get(); }
	apus_service *release() noexcept { return handle_.release(); }

private:
	detail::owned<apus_service, apus_service_free> handle_;
};

/** The files of a folder. */
inline service files(const std::string &root, const apus_files_options *options = nullptr)
{
	return service(apus_files_new(root.c_str(), options));
}

/** A reverse proxy in front of origins: `127.0.0.1:9000`, `unix:/run/app.sock`. */
inline service proxy(std::initializer_list<std::string> origins)
{
	detail::owned<apus_upstream, apus_upstream_free> upstream(detail::check(apus_upstream_new()));
	for (const std::string &origin : origins)
		detail::check(apus_upstream_node(upstream.get(), origin.c_str(), 1));
	return service(apus_proxy_new(upstream.release()));
}

/** A shared cache of at most `bytes` in front of a service. */
inline service cache(service of, std::uint64_t bytes) { return service(apus_cache_new(of.release(), bytes)); }

/** PHP over FastCGI, beside the files of its folder. */
inline service php(const std::string &address, const std::string &root)
{
	return service(apus_php_new(address.c_str(), root.c_str()));
}

/** The routes of an application or of one of its groups, as long as the application lives. */
class routes {
public:
	/** `handler` is called with (request, response), on every worker at once. */
	template <typename F> routes &route(const std::string &method, const std::string &path, F handler)
	{
		F *function = own(std::move(handler));
		detail::check(apus_app_route(handle_, method.c_str(), path.c_str(), call<F>, function));
		return *this;
	}
	template <typename F> routes &get(const std::string &path, F handler) { return route("GET", path, std::move(handler)); }
	template <typename F> routes &post(const std::string &path, F handler) { return route("POST", path, std::move(handler)); }
	template <typename F> routes &put(const std::string &path, F handler) { return route("PUT", path, std::move(handler)); }
	template <typename F> routes &del(const std::string &path, F handler) { return route("DELETE", path, std::move(handler)); }

	/** Runs before the handlers; an int other than 0, or an http_error, ends the request there. */
	template <typename F> routes &before(F hook)
	{
		detail::check(apus_app_before(handle_, call<F>, own(std::move(hook))));
		return *this;
	}

	/** Runs after the handlers, with (response). */
	template <typename F> routes &after(F hook)
	{
		detail::check(apus_app_after(
			handle_,
			[](apus_response *filled, void *user) {
				apus::response response(filled);
				detail::guarded([&] { (*static_cast<F *>(user))(response); });
			},
			own(std::move(hook))));
		return *this;
	}

	template <typename F> routes &fallback(F handler)
	{
		detail::check(apus_app_fallback(handle_, call<F>, own(std::move(handler))));
		return *this;
	}

	routes &mount(const std::string &path, service mounted)
	{
		detail::check(apus_app_mount(handle_, path.c_str(), mounted.release()));
		return *this;
	}

	/** A route for WebSockets: `message` is called with (websocket, std::string_view, apus_message_kind). */
	template <typename F> routes &websocket(const std::string &path, F message)
	{
		apus_websocket_events events{};
		events.size = sizeof events;
		events.message = [](apus_websocket *socket, apus_message_kind kind, const char *data, std::size_t len, void *user) {
			apus::websocket view(socket);
			if (detail::guarded([&] { (*static_cast<F *>(user))(view, std::string_view(data, len), kind); }))
				view.close(1011);
		};
		detail::check(apus_app_websocket(handle_, path.c_str(), &events, own(std::move(message))));
		return *this;
	}

	routes group(const std::string &prefix) { return routes(detail::check(apus_app_group(handle_, prefix.c_str()))); }
	routes host(const std::string &name) { return routes(detail::check(apus_app_host(handle_, name.c_str()))); }
	apus_app *handle() const noexcept { return handle_; }

protected:
	explicit routes(apus_app *handle) noexcept : handle_(handle) {}
	apus_app *handle_;

private:
	template <typename F> static int call(apus_request *asked, apus_response *filled, void *user)
	{
		apus::request request(asked);
		apus::response response(filled);
		return detail::guarded([&] { return (*static_cast<F *>(user))(request, response); });
	}

	/** Keeps a function as long as the application lives. */
	template <typename F> F *own(F function)
	{
		auto kept = std::make_unique<F>(std::move(function));
		detail::check(apus_app_own(handle_, kept.get(), detail::destroy<F>));
		return kept.release();
	}
};

/** An application. */
class app : public routes {
public:
	app() : routes(detail::check(apus_app_new())) {}
	app(app &&other) noexcept : routes(other.release()) {}
	app(const app &) = delete;
	app &operator=(const app &) = delete;
	~app() { apus_app_free(handle_); }
	/** Throws an error with all mistakes of its routes. */
	void check() const { detail::check(apus_app_check(handle_)); }
	apus_app *release() noexcept { return std::exchange(handle_, nullptr); }
};

/** TLS settings of a listener. */
class tls {
public:
	/** With a certificate chain and its key, of files in PEM form. */
	tls(const std::string &certificate, const std::string &key) : handle_(detail::check(apus_tls_new()))
	{
		add("", certificate, key);
	}
	/** Another certificate, for server names that are separated by commas. */
	tls &add(const std::string &names, const std::string &certificate, const std::string &key)
	{
		auto *loaded = detail::check(apus_certificate_files(certificate.c_str(), key.c_str()));
		detail::check(apus_tls_certificate(handle_.get(), names.empty() ? nullptr : names.c_str(), loaded));
		return *this;
	}
	/** `modern`, `intermediate` or `legacy`. */
	tls &policy(const std::string &name)
	{
		detail::check(apus_tls_policy(handle_.get(), name.c_str()));
		return *this;
	}
	apus_tls *get() const noexcept { return handle_.get(); }
	apus_tls *release() noexcept { return handle_.release(); }

private:
	detail::owned<apus_tls, apus_tls_free> handle_;
};

/** A server. It stops, and waits for its end, when it is destroyed. */
class server {
public:
	explicit server(app &&application) : handle_(detail::check(apus_server_new(application.release()))) {}
	server &listen(const std::string &address) { return checked(apus_server_listen(handle_.get(), address.c_str())); }
	server &listen(const std::string &address, tls settings)
	{
		return checked(apus_server_listen_tls(handle_.get(), address.c_str(), settings.release()));
	}
	server &listen_unix(const std::string &path) { return checked(apus_server_listen_unix(handle_.get(), path.c_str())); }
	server &workers(std::size_t count) { return checked(apus_server_workers(handle_.get(), count)); }
	server &limit(apus_limit limit, std::uint64_t value) { return checked(apus_server_limit(handle_.get(), limit, value)); }
	/** Starts it on threads of its own. */
	server &start() { return checked(apus_server_start(handle_.get())); }
	/** Serves until SIGTERM or SIGINT, or stop(). */
	server &run() { return checked(apus_server_run(handle_.get())); }
	server &stop() { return checked(apus_server_stop(handle_.get())); }
	server &wait() { return checked(apus_server_wait(handle_.get())); }
	std::uint16_t port(std::size_t index = 0) const noexcept { return apus_server_port(handle_.get(), index); }
	apus_server *get() const noexcept { return handle_.get(); }
	apus_server *release() noexcept { return handle_.release(); }

private:
	server &checked(apus_status status)
	{
		detail::check(status);
		return *this;
	}

	detail::owned<apus_server, apus_server_free> handle_;
};

/** A server on the thread of its owner, inside a loop of the program. */
class worker {
public:
	explicit worker(server &&of) : handle_(detail::check(apus_worker_new(of.release()))) {}
	/** Readable when there is work. */
	int fd() const noexcept { return apus_worker_fd(handle_.get()); }
	/** The milliseconds after which step() has to be called in any case. */
	int timeout() const noexcept { return apus_worker_timeout(handle_.get()); }
	/** Does what there is to do; false once a stop has ended. */
	bool step()
	{
		apus_status status = apus_worker_step(handle_.get());
		if (status != APUS_END)
			detail::check(status);
		return status != APUS_END;
	}
	void stop() { detail::check(apus_worker_stop(handle_.get())); }
	std::uint16_t port(std::size_t index = 0) const noexcept { return apus_worker_port(handle_.get(), index); }
	apus_worker *get() const noexcept { return handle_.get(); }

private:
	detail::owned<apus_worker, apus_worker_free> handle_;
};

} // namespace apus

#endif
