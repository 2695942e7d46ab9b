<?php

/**
 * The runtime of Apus' resident workers, which loads an application once and then handles request after request.
 *
 * Plain PHP 8.1 or later, no extensions, one file. Apus runs it as the script of one FastCGI request (PHP-FPM or php-cgi)
 * for each worker; it connects back to Apus and uses the protocol of WIRE.md. README.md is the contract with applications.
 *
 * The order of the file: the wire protocol, request bodies, superglobals, the state of PHP that is reset between requests,
 * output, and the worker that uses them; then the native API (namespace Apus), the functions that applications know from
 * FrankenPHP and PHP-FPM, and the boot.
 *
 * Code that runs for each request uses the name of its class instead of `self`, which PHP resolves each time.
 */

declare(strict_types=1);

namespace Apus\Runtime {

    use Apus\App;
    use Apus\Db;
    use Apus\LibraryState;
    use Apus\Log;
    use Apus\Task;
    use Throwable;

    /** The connection to Apus is lost, or the protocol was violated. */
    final class ConnectionLost extends \RuntimeException
    {
    }

    /** Frames over the socket; see WIRE.md. */
    final class Wire
    {
        public const REQUEST = 1;
        public const BODY = 2;
        public const CANCEL = 3;
        public const PING = 4;
        public const STOP = 5;
        public const EVENT = 6;
        public const HELLO = 65;
        public const READY = 66;
        public const RESPONSE = 67;
        public const CHUNK = 68;
        public const PULL = 69;
        public const PONG = 70;
        public const LOG = 71;
        public const COMMAND = 72;
        public const FAILED = 73;
        public const BYE = 74;
        public const INTERIM = 75;

        /** RESPONSE: CHUNK frames follow. CHUNK, BODY: the last one. REQUEST: the body follows in BODY frames. */
        public const FIRST = 1;
        /** The end of a response: READY follows when the worker is idle. */
        public const CONTINUES_WORKING = 2;
        /** The end of a response: BYE follows. */
        public const LEAVING = 4;
        /** The last CHUNK: the response is incomplete. */
        public const TRUNCATED = 8;

        /** The maximum length of a frame. */
        private const MAX = 16 << 20;

        /** The maximum length of a payload that is copied behind its header, to need only one write. */
        private const JOINED = 65536;

        /** The minimum and the maximum size of a read. With the minimum, one read gets a typical request. */
        private const READ = [16384, 262144];

        /** Frames that are queued for the next write. */
        private string $pending = '';
        /** Input behind the last frame. */
        private string $buffer = '';

        /** @param resource $socket */
        private function __construct(private $socket)
        {
        }

        public static function connect(string $path): self
        {
            $socket = @\stream_socket_client('unix://' . $path, $code, $message, 10);
            if ($socket === false) {
                throw new ConnectionLost("cannot connect to $path: $message");
            }
            \stream_set_timeout($socket, 86400 * 365);
            return new self($socket);
        }

        /**
         * The next frame.
         *
         * @return array{int, int, string, string} type, flags, serialized part (of REQUEST and EVENT), the rest of the payload
         */
        public function read(): array
        {
            $this->await(8);
            ['length' => $length, 'type' => $type, 'flags' => $flags] = \unpack('Vlength/Ctype/Cflags', $this->buffer);
            if ($length > self::MAX) {
                throw new ConnectionLost('a frame is too long');
            }
            $this->await(8 + $length);
            $first = 0;
            $start = 8;
            if ($type === self::REQUEST || $type === self::EVENT) {
                $first = $length >= 4 ? \unpack('V', $this->buffer, 8)[1] : $length;
                $start = 12;
                if ($first + 4 > $length) {
                    throw new ConnectionLost('a frame is malformed');
                }
            }
            $end = 8 + $length;
            $parameters = $first > 0 ? \substr($this->buffer, $start, $first) : '';
            $body = $start + $first < $end ? \substr($this->buffer, $start + $first, $end - $start - $first) : '';
            $this->buffer = \strlen($this->buffer) > $end ? \substr($this->buffer, $end) : '';
            return [$type, $flags, $parameters, $body];
        }

        /** Reads until the buffer has this many bytes. */
        private function await(int $length): void
        {
            while (($missing = $length - \strlen($this->buffer)) > 0) {
                $most = \min(\max($missing, self::READ[0]), self::READ[1]);
                // With an address argument, PHP does not use its stream buffer and does not poll the socket first.
                $data = \stream_socket_recvfrom($this->socket, $most, 0, $address);
                if ($data === false) {
                    // A signal may have interrupted the call. If the connection is lost, the second call fails, too.
                    $data = \stream_socket_recvfrom($this->socket, $most, 0, $address);
                }
                if ($data === false || $data === '') {
                    throw new ConnectionLost('the server is gone');
                }
                $this->buffer .= $data;
            }
        }

        /** Whether a frame waits to be read. */
        public function readable(): bool
        {
            if ($this->buffer !== '') {
                return true;
            }
            $read = [$this->socket];
            $none = null;
            return @\stream_select($read, $none, $none, 0) === 1;
        }

        /** Sends the queued frames and this one. */
        public function send(int $type, string $payload = '', int $flags = 0): void
        {
            $length = \strlen($payload);
            $head = $this->pending . \pack('VCCv', $length, $type, $flags, 0);
            $this->pending = '';
            if ($length <= self::JOINED) {
                $this->write($head . $payload);
            } else {
                $this->write($head);
                $this->write($payload);
            }
        }

        /** Queues a frame for the next write. */
        public function queue(int $type, string $payload = '', int $flags = 0): void
        {
            $this->pending .= \pack('VCCv', \strlen($payload), $type, $flags, 0) . $payload;
            if (\strlen($this->pending) > self::JOINED) {
                $this->flush();
            }
        }

        /** Sends the queued frames. */
        public function flush(): void
        {
            if ($this->pending !== '') {
                $pending = $this->pending;
                $this->pending = '';
                $this->write($pending);
            }
        }

        /** Sends the head of a response with its body, or the first part of it. */
        public function respond(int $status, string $fields, string $body, int $flags, string $after = ''): void
        {
            $head = $this->pending . \pack(
                'VCCvvvVV',
                12 + \strlen($fields) + \strlen($body),
                self::RESPONSE,
                $flags,
                0,
                $status,
                0,
                \min(\memory_get_usage(), 0xFFFFFFFF),
                \strlen($fields)
            ) . $fields;
            $this->pending = '';
            if (\strlen($body) <= self::JOINED) {
                $this->write($head . $body . $after);
                return;
            }
            $this->write($head);
            $this->write($body);
            if ($after !== '') {
                $this->write($after);
            }
        }

        private function write(string $data): void
        {
            $written = @\fwrite($this->socket, $data);
            if ($written !== \strlen($data)) {
                throw new ConnectionLost('the server is gone');
            }
        }

        public function close(): void
        {
            @\fclose($this->socket);
        }
    }

    /** The body of a request: inline, or pulled from Apus as it is read, and kept so that it can be read again. */
    final class RequestBody
    {
        /** The number of bytes of a PULL. */
        private const PIECE = 262144;
        /** The length up to which PHP keeps a body in memory. */
        private const IN_MEMORY = 16384;

        /** @var resource|null the pulled part of the body */
        private $spool = null;
        private int $pulled = 0;
        private bool $whole;

        public function __construct(private string $inline, private ?Wire $wire)
        {
            $this->whole = $wire === null;
        }

        /** Whether the body is empty. */
        public function isEmpty(): bool
        {
            return $this->whole && $this->wire === null && $this->inline === '';
        }

        /** The next piece, which is not kept; an empty string at the end. */
        public function piece(): string
        {
            if ($this->wire === null) {
                $piece = $this->inline;
                $this->inline = '';
                return $piece;
            }
            // After CANCEL, Apus does not respond to a PULL.
            $this->whole = $this->whole || Worker::$cancelled;
            while (!$this->whole) {
                $this->wire->send(Wire::PULL, \pack('V', self::PIECE));
                [$type, $flags, , $piece] = $this->wire->read();
                if ($type === Wire::STOP) {
                    Worker::$stopping = true;
                    [$type, $flags, , $piece] = $this->wire->read();
                }
                if ($type === Wire::CANCEL) {
                    $this->whole = true;
                    Worker::$cancelled = true;
                    return '';
                }
                if ($type !== Wire::BODY) {
                    throw new ConnectionLost('a BODY frame was due');
                }
                $this->whole = ($flags & Wire::FIRST) !== 0;
                if ($piece !== '') {
                    return $piece;
                }
            }
            return '';
        }

        /** Up to $length bytes at $offset; an empty string behind the end. */
        public function read(int $offset, int $length): string
        {
            if ($this->wire === null) {
                return \substr($this->inline, $offset, $length);
            }
            while ($offset >= $this->pulled) {
                $piece = $this->piece();
                if ($piece === '') {
                    return '';
                }
                $this->spool ??= \tmpfile();
                \fseek($this->spool, $this->pulled);
                \fwrite($this->spool, $piece);
                $this->pulled += \strlen($piece);
            }
            \fseek($this->spool, $offset);
            return (string) \fread($this->spool, \min($length, $this->pulled - $offset));
        }

        /** The whole body of up to $limit bytes; null if it is longer. */
        public function all(int $limit): ?string
        {
            if ($this->wire === null) {
                return \strlen($this->inline) <= $limit ? $this->inline : null;
            }
            $all = '';
            while (($part = $this->read(\strlen($all), self::PIECE)) !== '') {
                $all .= $part;
                if (\strlen($all) > $limit) {
                    return null;
                }
            }
            return $all;
        }

        /** Whether a stream of PHP can have this position: behind the end only if PHP has the body in a file. */
        public function hasPosition(int $length): bool
        {
            while ($this->size() < $length && $this->read($this->size(), 1) !== '') {
            }
            return $this->size() >= $length || $this->size() > self::IN_MEMORY;
        }

        /** The number of bytes that were received. */
        public function size(): int
        {
            return $this->wire === null ? \strlen($this->inline) : $this->pulled;
        }
    }

    /**
     * The stream wrapper for `php://input`; it forwards other `php://` addresses to PHP. It is installed only during a
     * request with a body: otherwise PHP's own wrapper, whose input is empty, is correct and faster.
     */
    final class Input
    {
        /** PHP's flags of a wrapper: search `include_path`; the stream is read by `include` or `require`. */
        private const USE_PATH = 1;
        private const FOR_INCLUDE = 128;
        /** The address of the body within a `php://filter`, which PHP's own wrapper opens. */
        private const INNER = 'apus-input';
        /** The prefixes of another address, besides filters. */
        private const LAYERS = '#^(?:compress\.(?:zlib|bzip2)://|zlib:)#i';
        /** What `include` may always read: other schemes are remote. */
        private const LOCAL = '#^(?:(?:file|glob|phar|zip)://|php://(?:memory|temp|output|stdout|stderr)\b|(?![a-z0-9+.-]+://|data:))#i';

        private static bool $installed = false;
        private static ?RequestBody $body = null;

        /** @var resource|null */
        public $context;
        /** @var resource|null the stream of another address */
        private $other = null;
        private int $offset = 0;
        private bool $ended = false;

        public static function install(RequestBody $body): void
        {
            Input::$body = $body;
            if (!Input::$installed) {
                \stream_wrapper_unregister('php');
                \stream_wrapper_register('php', self::class);
                Input::$installed = true;
            }
        }

        public static function remove(): void
        {
            Input::$body = null;
            if (Input::$installed) {
                \stream_wrapper_restore('php');
                Input::$installed = false;
            }
        }

        public function stream_open(string $path, string $mode, int $options, ?string &$opened): bool
        {
            // PHP checks this itself only for wrappers that are registered as remote, which fopen() may not use then.
            if (($options & self::FOR_INCLUDE) !== 0 && !\ini_get('allow_url_include') && !Input::isLocal($path)) {
                return false;
            }
            if (Input::isBody($path)) {
                return true;
            }
            $filter = Input::withInnerBody($path);
            \stream_wrapper_restore('php');
            if ($filter !== null) {
                \stream_wrapper_register(self::INNER, self::class);
            }
            try {
                $context = $this->context ?? \stream_context_get_default();
                $this->other = @\fopen($filter ?? $path, $mode, ($options & self::USE_PATH) !== 0, $context) ?: null;
            } finally {
                if ($filter !== null) {
                    \stream_wrapper_unregister(self::INNER);
                }
                \stream_wrapper_unregister('php');
                \stream_wrapper_register('php', self::class);
            }
            return $this->other !== null;
        }

        private static function isBody(string $path): bool
        {
            return Input::$body !== null
                && (\strcasecmp($path, 'php://input') === 0 || \strcasecmp($path, self::INNER . '://') === 0);
        }

        /** The offset of the resource in the address of a filter: as in PHP, it is behind the first `/resource=`. */
        private static function resource(string $path): ?int
        {
            $end = \strncasecmp($path, 'php://filter/', 13) === 0 ? \strpos($path, '/resource=', 12) : false;
            return $end === false ? null : $end + 10;
        }

        /** The address of a filter of the body, with an address of the body that PHP's own wrapper can open. */
        private static function withInnerBody(string $path): ?string
        {
            $start = Input::resource($path);
            if ($start === null) {
                return null;
            }
            $resource = \substr($path, $start);
            $inner = Input::isBody($resource) ? self::INNER . '://' : Input::withInnerBody($resource);
            return $inner === null ? null : \substr($path, 0, $start) . $inner;
        }

        /** Whether `include` may read an address without `allow_url_include`. */
        private static function isLocal(string $path): bool
        {
            while (true) {
                $start = Input::resource($path);
                $start ??= \preg_match(self::LAYERS, $path, $match) === 1 ? \strlen($match[0]) : null;
                if ($start === null) {
                    return \preg_match(self::LOCAL, $path) === 1;
                }
                $path = \substr($path, $start);
            }
        }

        public function stream_read(int $length): string|false
        {
            if ($this->other !== null) {
                return \fread($this->other, $length);
            }
            $data = Input::$body?->read($this->offset, $length) ?? '';
            $this->offset += \strlen($data);
            $this->ended = $data === '';
            return $data;
        }

        public function stream_write(string $data): int|false
        {
            return $this->other !== null ? \fwrite($this->other, $data) : false;
        }

        public function stream_eof(): bool
        {
            return $this->other !== null ? \feof($this->other) : $this->ended;
        }

        public function stream_tell(): int
        {
            return $this->other !== null ? (int) \ftell($this->other) : $this->offset;
        }

        public function stream_seek(int $offset, int $whence): bool
        {
            if ($this->other !== null) {
                return \fseek($this->other, $offset, $whence) === 0;
            }
            if ($whence === \SEEK_END) {
                Input::$body?->all(\PHP_INT_MAX);
            }
            $target = $offset + match ($whence) {
                \SEEK_CUR => $this->offset,
                \SEEK_END => Input::$body?->size() ?? 0,
                default => 0,
            };
            if ($target < 0 || $target > $this->offset && !Input::$body?->hasPosition($target)) {
                return false;
            }
            $this->offset = $target;
            $this->ended = false;
            return true;
        }

        public function stream_flush(): bool
        {
            return $this->other !== null && \fflush($this->other);
        }

        /** @return array<int|string, int>|false */
        public function stream_stat(): array|false
        {
            return $this->other !== null ? \fstat($this->other) : false;
        }

        /** PHP's own wrapper has none either. */
        public function url_stat(string $path, int $flags): array|false
        {
            return false;
        }

        public function stream_truncate(int $size): bool
        {
            return $this->other !== null && \ftruncate($this->other, $size);
        }

        public function stream_lock(int $operation): bool
        {
            return $this->other !== null && ($operation === 0 || \flock($this->other, $operation));
        }

        public function stream_set_option(int $option, int $first, ?int $second): bool
        {
            if ($this->other === null) {
                return false;
            }
            return match ($option) {
                \STREAM_OPTION_BLOCKING => \stream_set_blocking($this->other, (bool) $first),
                \STREAM_OPTION_READ_TIMEOUT => \stream_set_timeout($this->other, $first, (int) $second),
                \STREAM_OPTION_WRITE_BUFFER => \stream_set_write_buffer($this->other, (int) $second) === 0,
                default => false,
            };
        }

        /** @return resource|false */
        public function stream_cast(int $as)
        {
            return $this->other ?? false;
        }

        public function stream_close(): void
        {
            if ($this->other !== null) {
                \fclose($this->other);
            }
        }
    }

    /**
     * Reads `multipart/form-data` (RFC 7578) as PHP does (main/rfc1867.c): fields, uploads in temporary files, PHP's limits and
     * errors. Parameters are those outside of quoted strings, as for the server's own forms.
     */
    final class Multipart
    {
        /** The maximum length of a line in the head of a part, and of a boundary. */
        private const MAX_LINE = 16384;
        private const MAX_BOUNDARY = 5116;

        private string $buffer = '';
        private bool $ended = false;
        /** The form fields, as a query string. */
        private string $fields = '';
        private int $fieldCount = 0;
        /** @var array<mixed> */
        private array $files = [];
        /** @var list<string> temporary files */
        private array $temporary = [];
        private ?int $formLimit = null;
        private int $uploads = 0;
        /** Whether files are skipped: as in PHP, all that follow one with an invalid name, or one too many. */
        private bool $isSkipping = false;
        /** The name of the next file without one. */
        private int $unnamed = 0;
        private int $read = 0;

        private function __construct(private RequestBody $body, private string $boundary, private int $limit)
        {
        }

        /** @return array{array<mixed>, array<mixed>, list<string>}|null $_POST, $_FILES, temporary files */
        public static function parse(RequestBody $body, string $type, int $limit): ?array
        {
            $boundary = self::boundary($type);
            if ($boundary === null) {
                return null;
            }
            $reader = new self($body, '--' . $boundary, $limit);
            try {
                $reader->parts();
            } catch (ConnectionLost $gone) {
                foreach ($reader->temporary as $file) {
                    @\unlink($file);
                }
                throw $gone;
            }
            \parse_str($reader->fields, $post);
            return [$post, $reader->files, $reader->temporary];
        }

        private static function boundary(string $type): ?string
        {
            $start = \stripos($type, 'boundary');
            $start = $start === false ? false : \strpos($type, '=', $start);
            if ($start === false) {
                \trigger_error('Missing boundary in multipart/form-data POST data', \E_USER_WARNING);
                return null;
            }
            $boundary = \substr($type, $start + 1);
            if (!\str_starts_with($boundary, '"')) {
                $boundary = \substr($boundary, 0, \strcspn($boundary, ',;'));
            } elseif (($end = \strpos($boundary, '"', 1)) !== false) {
                $boundary = \substr($boundary, 1, $end - 1);
            } else {
                \trigger_error('Invalid boundary in multipart/form-data POST data', \E_USER_WARNING);
                return null;
            }
            if (\strlen($boundary) > self::MAX_BOUNDARY) {
                \trigger_error('Boundary too large in multipart/form-data POST data', \E_USER_WARNING);
                return null;
            }
            return $boundary;
        }

        private function more(): bool
        {
            if ($this->ended) {
                return false;
            }
            $piece = $this->body->piece();
            $this->read += \strlen($piece);
            // A body of unknown length is longer than post_max_size.
            if ($piece === '' || $this->read > $this->limit) {
                $this->ended = true;
                return false;
            }
            $this->buffer .= $piece;
            return true;
        }

        /** The next line without its end, LF or CR LF; null at the end of the body. */
        private function line(): ?string
        {
            while (($end = \strpos($this->buffer, "\n")) === false) {
                if (\strlen($this->buffer) > self::MAX_LINE || !$this->more()) {
                    // As PHP, take a part of a long line for a line.
                    $line = \strlen($this->buffer) > self::MAX_LINE ? $this->buffer : null;
                    $this->buffer = '';
                    return $line;
                }
            }
            $line = \substr($this->buffer, 0, $end > 0 && $this->buffer[$end - 1] === "\r" ? $end - 1 : $end);
            $this->buffer = \substr($this->buffer, $end + 1);
            return $line;
        }

        private function parts(): void
        {
            while (true) {
                while (($line = $this->line()) !== $this->boundary) {
                    if ($line === null) {
                        return;
                    }
                }
                $headers = $this->headers();
                $disposition = $headers['content-disposition'] ?? null;
                if ($disposition === null) {
                    continue;
                }
                $name = $filename = null;
                foreach (self::parameters($disposition) as [$key, $value]) {
                    if ($key === 'name') {
                        $name = $value;
                    } elseif ($key === 'filename') {
                        $filename = $value;
                    }
                }
                if ($filename === null && $name === null) {
                    \trigger_error('File Upload Mime headers garbled', \E_USER_WARNING);
                    return;
                }
                if ($filename === null) {
                    $this->field($name);
                } else {
                    $this->file($name, $filename, $headers['content-type'] ?? '');
                }
            }
        }

        /** @return array<string, string> the field lines of a part; the first of a name counts */
        private function headers(): array
        {
            $headers = [];
            $name = null;
            while (($line = $this->line()) !== null && $line !== '') {
                $colon = \ctype_space($line[0]) ? false : \strpos($line, ':');
                if ($colon !== false) {
                    $name = \strtolower(\substr($line, 0, $colon));
                    // A later line of the same name goes nowhere, with its continuations.
                    $name = isset($headers[$name]) ? '' : $name;
                    $headers[$name] = \ltrim(\substr($line, $colon + 1));
                } elseif ($name !== null) {
                    $headers[$name] .= $line;
                }
            }
            return $headers;
        }

        /**
         * The parameters of Content-Disposition. A semicolon and an equals sign within quotes, double or single, separate nothing.
         *
         * @return list<array{string, string}> names in lower case, and values
         */
        private static function parameters(string $header): array
        {
            $parameters = [];
            $rest = \ltrim($header);
            while ($rest !== '') {
                $word = self::word($rest, ';');
                $rest = \ltrim($rest);
                if (\str_contains($word, '=')) {
                    $key = self::word($word, '=');
                    $parameters[] = [\strtolower($key), self::value($word)];
                }
            }
            return $parameters;
        }

        /** Removes the text before $stop from $rest, with all $stop that follow, and returns it. */
        private static function word(string &$rest, string $stop): string
        {
            \preg_match('/\G(?:"(?:\\\\"|[^"])*+"?|\'(?:\\\\\'|[^\'])*+\'?|[^"\'' . $stop . '])*+/s', $rest, $match);
            $word = $match[0];
            $rest = \ltrim(\substr($rest, \strlen($word)), $stop);
            return $word;
        }

        /** A value: within quotes, with the backslashes before backslashes and quotes removed, or up to a space. */
        private static function value(string $text): string
        {
            $text = \ltrim($text);
            $quote = $text === '' ? '' : $text[0];
            if ($quote === '"' || $quote === "'") {
                \preg_match('/\G(?:\\\\[\\\\' . $quote . ']|[^' . $quote . '])*+/s', $text, $match, 0, 1);
                return (string) \preg_replace('/\\\\([\\\\' . $quote . '])/', '$1', $match[0]);
            }
            return \str_replace('\\\\', '\\', \substr($text, 0, \strcspn($text, " \t\n\v\f\r")));
        }

        private function field(string $name): void
        {
            $value = '';
            $this->body(static function (string $piece) use (&$value): void {
                $value .= $piece;
            });
            if (\strcasecmp($name, 'MAX_FILE_SIZE') === 0) {
                $this->formLimit = (int) $value;
            }
            $limit = (int) \ini_get('max_input_vars');
            if (++$this->fieldCount <= $limit) {
                $this->fields .= ($this->fields === '' ? '' : '&') . \urlencode($name) . '=' . \urlencode($value);
            } elseif ($this->fieldCount === $limit + 1) {
                \trigger_error("Input variables exceeded $limit. To increase the limit change max_input_vars in php.ini.", \E_USER_WARNING);
            }
        }

        private function file(?string $name, string $filename, string $type): void
        {
            $limit = (int) \ini_get('max_file_uploads');
            if ($this->uploads === $limit && \ini_get('file_uploads')) {
                \trigger_error('Maximum number of allowable file uploads has been exceeded', \E_USER_WARNING);
                $this->uploads++;
            }
            $name ??= (string) $this->unnamed++;
            $this->isSkipping = $this->isSkipping || !\ini_get('file_uploads') || $this->uploads > $limit || !self::hasClosedBrackets($name);
            if ($this->isSkipping) {
                $this->body(null);
                return;
            }
            $this->upload($name, $filename, \substr($type, 0, \strcspn($type, ';')));
        }

        /** PHP skips files whose name has brackets that do not match, or text behind them. */
        private static function hasClosedBrackets(string $name): bool
        {
            $open = 0;
            foreach (\str_split($name) as $i => $byte) {
                if ($byte === '[') {
                    $open++;
                } elseif ($byte === ']') {
                    $open--;
                    if ($open < 0 || ($name[$i + 1] ?? '[') !== '[') {
                        return false;
                    }
                }
            }
            return $open === 0;
        }

        private function upload(string $name, string $filename, string $type): void
        {
            if ($filename === '') {
                $this->body(null);
                $this->add($name, self::entry('', '', '', \UPLOAD_ERR_NO_FILE, 0));
                return;
            }
            $this->uploads++;
            $folder = \ini_get('upload_tmp_dir') ?: \sys_get_temp_dir();
            $path = @\tempnam($folder, 'php');
            $error = \UPLOAD_ERR_OK;
            $file = null;
            if ($path === false || ($file = @\fopen($path, 'wb')) === false) {
                $error = \UPLOAD_ERR_NO_TMP_DIR;
                $file = null;
            } else {
                $this->temporary[] = $path;
            }
            $size = 0;
            $most = Ini::bytes('upload_max_filesize');
            $formMost = $this->formLimit;
            $whole = $this->body(static function (string $piece) use (&$size, &$error, $file, $most, $formMost): void {
                $size += \strlen($piece);
                if ($error !== \UPLOAD_ERR_OK) {
                    return;
                }
                if ($most > 0 && $size > $most) {
                    $error = \UPLOAD_ERR_INI_SIZE;
                } elseif ($formMost !== null && $formMost !== 0 && $size > $formMost) {
                    $error = \UPLOAD_ERR_FORM_SIZE;
                } elseif ($file !== null && @\fwrite($file, $piece) !== \strlen($piece)) {
                    $error = \UPLOAD_ERR_CANT_WRITE;
                }
            });
            if ($file !== null) {
                \fclose($file);
            }
            if (!$whole && $error === \UPLOAD_ERR_OK) {
                $error = \UPLOAD_ERR_PARTIAL;
            }
            if ($error !== \UPLOAD_ERR_OK) {
                if ($file !== null) {
                    @\unlink($path);
                    \array_pop($this->temporary);
                }
                $path = '';
                $size = 0;
                $type = '';
            }
            $this->add($name, self::entry($filename, $type, (string) $path, $error, $size));
        }

        /** @return array<string, string|int> the entry of a file in $_FILES, in PHP's order */
        private static function entry(string $filename, string $type, string $path, int $error, int $size): array
        {
            $slash = \max(\strrpos($filename, '/'), \strrpos($filename, '\\'));
            return [
                'name' => $slash === false ? $filename : \substr($filename, $slash + 1),
                'full_path' => $filename,
                'type' => $type,
                'tmp_name' => $path,
                'error' => $error,
                'size' => $size,
            ];
        }

        /**
         * Adds a file to $_FILES, with PHP's order of nested names: `a[b]` is `$_FILES['a']['name']['b']`.
         *
         * @param array<string, string|int> $file
         */
        private function add(string $name, array $file): void
        {
            $bracket = \strpos($name, '[');
            $base = $bracket === false ? $name : \substr($name, 0, $bracket);
            $base = \strtr(\ltrim($base, ' '), ['.' => '_', ' ' => '_']);
            if ($base === '') {
                return;
            }
            $path = [];
            if ($bracket !== false && \preg_match_all('/\G\[([^\]]*)\]/', \substr($name, $bracket), $matches)) {
                $path = $matches[1];
            }
            foreach ($file as $property => $value) {
                if ($path === []) {
                    $this->files[$base][$property] = $value;
                    continue;
                }
                if (!\is_array($this->files[$base][$property] ?? null)) {
                    $this->files[$base][$property] = [];
                }
                $place = &$this->files[$base][$property];
                foreach ($path as $i => $key) {
                    if (!\is_array($place)) {
                        $place = [];
                    }
                    if ($key === '') {
                        $place[] = null;
                        $key = \array_key_last($place);
                    }
                    $place = &$place[$key];
                }
                $place = $value;
                unset($place);
            }
        }

        /** Passes the data of a part to $sink, up to the next delimiter. False if the body ends before. */
        private function body(?\Closure $sink): bool
        {
            $delimiter = "\n" . $this->boundary;
            $keep = \strlen($delimiter) + 1;
            while (($end = \strpos($this->buffer, $delimiter)) === false) {
                // Bytes that may be the beginning of a delimiter, or CR before it, stay in the buffer.
                $sure = \strlen($this->buffer) - $keep;
                if ($sure > 0) {
                    if ($sink !== null) {
                        $sink(\substr($this->buffer, 0, $sure));
                    }
                    $this->buffer = \substr($this->buffer, $sure);
                }
                if (!$this->more()) {
                    break;
                }
            }
            $length = $end === false ? \strlen($this->buffer) - $this->partial($delimiter) : $end;
            $isCut = $length < \strlen($this->buffer);
            $data = \substr($this->buffer, 0, $isCut && $length > 0 && $this->buffer[$length - 1] === "\r" ? $length - 1 : $length);
            $this->buffer = $end === false ? '' : \substr($this->buffer, $end + 1);
            if ($sink !== null && $data !== '') {
                $sink($data);
            }
            return $end !== false;
        }

        /** The number of bytes at the end of the buffer that are the beginning of a delimiter. */
        private function partial(string $delimiter): int
        {
            $length = \min(\strlen($this->buffer), \strlen($delimiter));
            while ($length > 0 && !\str_ends_with($this->buffer, \substr($delimiter, 0, $length))) {
                $length--;
            }
            return $length;
        }
    }

    /** The settings of php.ini. */
    final class Ini
    {
        /** @var array<string, string|false> the initial values of the settings that an application can change */
        private static array $base = [];
        /** @var array<string, string|false> the session settings, without the handler, which is more than a setting */
        private static array $session = [];
        private static string $handler = '';
        private const HANDLER = 'session.save_handler';

        /** The value of a setting such as `8M` in bytes. */
        public static function bytes(string $name): int
        {
            $value = \trim((string) \ini_get($name));
            $factor = match (\strtolower(\substr($value, -1))) {
                'g' => 1 << 30,
                'm' => 1 << 20,
                'k' => 1 << 10,
                default => 1,
            };
            return (int) $value * $factor;
        }

        /**
         * Saves all settings.
         *
         * @param bool $ofSession whether session settings are reset after each request, too
         */
        public static function snapshot(bool $ofSession): void
        {
            Ini::$base = Ini::$session = [];
            foreach (\ini_get_all() as $name => $setting) {
                if (($setting['access'] & 1) === 0 || $name === self::HANDLER) {
                    continue;
                }
                if (\str_starts_with($name, 'session.')) {
                    Ini::$session[$name] = \ini_get($name);
                } else {
                    Ini::$base[$name] = \ini_get($name);
                }
            }
            Ini::$handler = (string) \ini_get(self::HANDLER);
            if ($ofSession) {
                Ini::$base += Ini::$session + [self::HANDLER => Ini::$handler];
            }
        }

        /**
         * Saves the current session settings as the initial ones. Frameworks set them once, when they create an object that
         * later requests reuse.
         */
        public static function keepSession(): void
        {
            foreach (Ini::$session as $name => $_) {
                Ini::$session[$name] = \ini_get($name);
            }
            Ini::$handler = (string) \ini_get(self::HANDLER);
        }

        /** Restores the saved settings. */
        public static function restore(): void
        {
            foreach (Ini::$base as $name => $value) {
                if (\ini_get($name) !== $value) {
                    Ini::put($name, (string) $value);
                }
            }
        }

        /** Restores the saved session settings. */
        public static function restoreSession(): void
        {
            foreach (Ini::$session as $name => $value) {
                if (\ini_get($name) !== $value) {
                    Ini::put($name, (string) $value);
                }
            }
            if (\ini_get(self::HANDLER) !== Ini::$handler) {
                Ini::put(self::HANDLER, Ini::$handler);
            }
        }

        private static function put(string $name, string $value): void
        {
            // A handler of the application cannot be set by a name. Deprecated settings cause warnings.
            if ($name === self::HANDLER && $value === 'user' || @\ini_set($name, $value) === false) {
                @\ini_restore($name);
            }
        }
    }

    /** Sets the superglobals of a request as PHP does. */
    final class Superglobals
    {
        /** @var array<string, mixed> the entries of $_SERVER that are the same for all requests: the environment */
        private static array $base = [];
        private static string $order = 'GP';
        private static bool $argv = false;

        /** The names in $_SERVER that belong to a request and not to the process. */
        private const OF_REQUESTS = [
            'AUTH_TYPE', 'CONTENT_LENGTH', 'CONTENT_TYPE', 'DOCUMENT_URI', 'GATEWAY_INTERFACE', 'HTTPS', 'ORIG_PATH_INFO',
            'ORIG_PATH_TRANSLATED', 'ORIG_SCRIPT_FILENAME', 'ORIG_SCRIPT_NAME', 'PATH_INFO', 'PATH_TRANSLATED', 'PHP_AUTH_DIGEST',
            'PHP_AUTH_PW', 'PHP_AUTH_USER', 'PHP_SELF', 'QUERY_STRING', 'REDIRECT_STATUS', 'REMOTE_ADDR', 'REMOTE_HOST',
            'REMOTE_PORT', 'REMOTE_USER', 'REQUEST_METHOD', 'REQUEST_SCHEME', 'REQUEST_URI', 'SCRIPT_FILENAME', 'SCRIPT_NAME',
            'SERVER_ADDR', 'SERVER_NAME', 'SERVER_PORT', 'SERVER_PROTOCOL', 'SERVER_SOFTWARE', 'DOCUMENT_ROOT', 'REQUEST_TIME',
            'REQUEST_TIME_FLOAT', 'argv', 'argc',
        ];

        /** Removes the parameters of the boot request from $_SERVER. */
        public static function boot(string $mode, string $script): void
        {
            $base = \array_diff_key($_SERVER, \array_flip(self::OF_REQUESTS));
            foreach ($base as $name => $value) {
                if (\preg_match('/^(?:HTTP_|APUS_|PHP_VALUE$|PHP_ADMIN_VALUE$)/', (string) $name)) {
                    unset($base[$name]);
                }
            }
            if ($mode === 'worker') {
                $base['FRANKENPHP_WORKER'] = '1';
                \putenv('FRANKENPHP_WORKER=1');
            }
            foreach (\array_keys($_ENV) as $name) {
                if (\str_starts_with((string) $name, 'APUS_')) {
                    unset($_ENV[$name]);
                }
            }
            Superglobals::$base = $base;
            Superglobals::$order = \ini_get('request_order') ?: (string) \ini_get('variables_order');
            Superglobals::$argv = (bool) \ini_get('register_argc_argv');
            $document = $_SERVER['DOCUMENT_ROOT'] ?? \dirname($script);
            $_SERVER = $base + [
                'DOCUMENT_ROOT' => $document,
                'SCRIPT_FILENAME' => $script,
                'SCRIPT_NAME' => '/' . \basename($script),
                'PHP_SELF' => '/' . \basename($script),
                'REQUEST_TIME' => \time(),
                'REQUEST_TIME_FLOAT' => \microtime(true),
            ];
            $_GET = $_POST = $_COOKIE = $_FILES = $_REQUEST = [];
        }

        /** @param array<string, mixed> $server by reference, to be changed without a copy */
        public static function set(array &$server, RequestBody $body): void
        {
            $now = \microtime(true);
            $script = $server['SCRIPT_NAME'] ?? '';
            $server['PHP_SELF'] ??= $script . ($server['PATH_INFO'] ?? '');
            $server['REQUEST_TIME_FLOAT'] = $now;
            $server['REQUEST_TIME'] = (int) $now;
            if (isset($server['HTTP_AUTHORIZATION'])) {
                Superglobals::authorization($server);
            }
            $query = $server['QUERY_STRING'] ?? '';
            if (Superglobals::$argv) {
                $server['argv'] = $query === '' || \str_contains($query, '=') ? ($query === '' ? [] : [$query]) : \explode('+', $query);
                $server['argc'] = \count($server['argv']);
            }
            $server += Superglobals::$base;
            $_SERVER = $server;

            $_GET = [];
            if ($query !== '') {
                \parse_str($query, $_GET);
            }
            $_COOKIE = isset($server['HTTP_COOKIE']) ? Superglobals::cookies($server['HTTP_COOKIE']) : [];
            $_POST = $_FILES = [];
            if (($server['REQUEST_METHOD'] ?? '') === 'POST') {
                Superglobals::form($server, $body);
            }
            if ($_GET === [] && $_POST === [] && $_COOKIE === []) {
                $_REQUEST = [];
                return;
            }
            $request = [];
            for ($i = 0, $length = \strlen(Superglobals::$order); $i < $length; $i++) {
                $part = match (Superglobals::$order[$i]) {
                    'G', 'g' => $_GET,
                    'P', 'p' => $_POST,
                    'C', 'c' => $_COOKIE,
                    default => [],
                };
                $request = $request === [] ? $part : Superglobals::merge($request, $part);
            }
            $_REQUEST = $request;
        }

        /**
         * Merges as PHP does: arrays of the same name are merged, other values are replaced.
         *
         * @param array<mixed> $into
         * @param array<mixed> $from
         * @return array<mixed>
         */
        private static function merge(array $into, array $from): array
        {
            foreach ($from as $name => $value) {
                $into[$name] = \is_array($value) && \is_array($into[$name] ?? null) ? Superglobals::merge($into[$name], $value) : $value;
            }
            return $into;
        }

        /** @param array<string, mixed> $server */
        private static function authorization(array &$server): void
        {
            $value = $server['HTTP_AUTHORIZATION'];
            if (\strncasecmp($value, 'Basic ', 6) === 0) {
                $pair = \base64_decode(\substr($value, 6));
                if ($pair !== false && \str_contains($pair, ':')) {
                    [$user, $password] = \explode(':', $pair, 2);
                    $server['PHP_AUTH_USER'] = $user;
                    // PHP omits an empty value.
                    if ($password !== '') {
                        $server['PHP_AUTH_PW'] = $password;
                    }
                }
            } elseif (\strncasecmp($value, 'Digest ', 7) === 0) {
                $server['PHP_AUTH_DIGEST'] = \substr($value, 7);
            }
        }

        /** @return array<mixed> */
        public static function cookies(string $header): array
        {
            $cookies = [];
            $nested = '';
            $left = (int) \ini_get('max_input_vars');
            foreach (\explode(';', $header) as $pair) {
                $pair = \ltrim($pair);
                if ($pair === '') {
                    continue;
                }
                if (--$left < 0) {
                    \trigger_error('Input variables exceeded ' . \ini_get('max_input_vars'), \E_USER_WARNING);
                    break;
                }
                [$name, $value] = \explode('=', $pair, 2) + [1 => ''];
                $value = \str_contains($value, '%') ? \rawurldecode($value) : $value;
                if (\str_contains($name, '[')) {
                    $nested .= '&' . \urlencode($name) . '=' . \urlencode($value);
                    continue;
                }
                if (\strcspn($name, ". \0") !== \strlen($name)) {
                    $plain = \strtr(\strtok($name, "\0") ?: '', '. ', '__');
                    // Reject a name that has such a prefix only after decoding: a browser did not check it.
                    if (\str_starts_with($plain, '__Host-') || \str_starts_with($plain, '__Secure-')) {
                        continue;
                    }
                    $name = $plain;
                }
                // The first cookie of a name has the most specific path (RFC 6265 section 5.4).
                if ($name !== '') {
                    $cookies[$name] ??= $value;
                }
            }
            if ($nested !== '') {
                \parse_str(\substr($nested, 1), $more);
                foreach ($more as $name => $value) {
                    if (!\str_starts_with((string) $name, '__Host-') && !\str_starts_with((string) $name, '__Secure-')) {
                        $cookies[$name] ??= $value;
                    }
                }
            }
            return $cookies;
        }

        /** @param array<string, mixed> $server */
        private static function form(array $server, RequestBody $body): void
        {
            $type = $server['CONTENT_TYPE'] ?? '';
            if ($type === '' || !\ini_get('enable_post_data_reading')) {
                return;
            }
            $media = \strtolower(\substr($type, 0, \strcspn($type, ';, ')));
            $isForm = $media === 'application/x-www-form-urlencoded';
            if (!$isForm && $media !== 'multipart/form-data') {
                return;
            }
            $limit = Ini::bytes('post_max_size');
            $limit = $limit > 0 ? $limit : \PHP_INT_MAX;
            $length = (int) ($server['CONTENT_LENGTH'] ?? 0);
            if ($length > $limit) {
                \trigger_error("POST Content-Length of $length bytes exceeds the limit of $limit bytes", \E_USER_WARNING);
                return;
            }
            if (!$isForm) {
                [$_POST, $_FILES, Request::$temporary] = Multipart::parse($body, $type, $limit) ?? [[], [], []];
                return;
            }
            $all = $body->all($limit);
            if ($all === null) {
                \trigger_error("POST content exceeds the limit of $limit bytes", \E_USER_WARNING);
            } elseif ($all !== '') {
                \parse_str($all, $_POST);
            }
        }
    }

    /** The current request. */
    final class Request
    {
        /** @var list<string> the temporary files of uploads */
        public static array $temporary = [];

        /** Whether a file is an upload of this request. */
        public static function isUpload(string $filename): bool
        {
            return \in_array($filename, Request::$temporary, true) && \is_file($filename);
        }

        public static function moveUpload(string $from, string $to): bool
        {
            if (!self::isUpload($from)) {
                return false;
            }
            if (!@\rename($from, $to) && !(@\copy($from, $to) && \unlink($from))) {
                \trigger_error("move_uploaded_file(): Unable to move \"$from\" to \"$to\"", \E_USER_WARNING);
                return false;
            }
            @\chmod($to, 0666 & ~\umask());
            Request::$temporary = \array_values(\array_diff(Request::$temporary, [$from]));
            return true;
        }

        public static function removeUploads(): void
        {
            foreach (Request::$temporary as $file) {
                if (\is_file($file)) {
                    @\unlink($file);
                }
            }
            Request::$temporary = [];
        }

        /**
         * The header fields of the request, as getallheaders() returns them.
         *
         * @return array<string, string>
         */
        public static function headers(): array
        {
            $headers = [];
            foreach ($_SERVER as $name => $value) {
                $name = (string) $name;
                if (\str_starts_with($name, 'HTTP_')) {
                    $headers[\str_replace(' ', '-', \ucwords(\strtolower(\strtr(\substr($name, 5), '_', ' '))))] = $value;
                } elseif ($name === 'CONTENT_TYPE' || $name === 'CONTENT_LENGTH') {
                    $headers[$name === 'CONTENT_TYPE' ? 'Content-Type' : 'Content-Length'] = $value;
                }
            }
            return $headers;
        }
    }

    /** The output buffer below the buffers of the application: printed output never reaches the FastCGI server. */
    final class Output
    {
        /** The size from which on a body is sent before it is complete. */
        private const CHUNK = 262144;

        /** Output that was flushed because the application ended the buffer. */
        private static string $kept = '';
        /** Whether the runtime, and not the application, removed the current buffer. */
        private static bool $ours = false;
        /** The number of bytes since the last removal, to distinguish a loop over all levels from a single removal. */
        private static int $removals = 0;
        /** Whether no new buffer is started any more. */
        public static bool $over = false;
        /** Whether a request runs: output during the boot is not part of a response. */
        public static bool $booting = true;
        /** Whether the application can remove the buffer. With ob_get_level() replaced, it does not see the buffer. */
        private static bool $removable = true;
        /** Whether each request has a buffer of php.ini's `output_buffering` or `output_handler` above the buffer of the runtime. */
        private static bool $hasOwn = false;
        /** The size from which on PHP flushes the buffer of `output_buffering`; 0 if there is no limit. */
        private static int $size = 0;
        /** PHP also calls destructors when it ends, before it removes the buffers. */
        private bool $isRemoved = false;

        public static function start(bool $removable): void
        {
            Output::$removable = $removable;
            $size = (int) \ini_get('output_buffering');
            Output::$size = $size > 1 ? $size : 0;
            Output::$hasOwn = !$removable && ($size > 0 || \ini_get('output_handler'));
            while (\count(\ob_list_handlers()) > 0) {
                \ob_end_clean();
            }
            Output::push();
        }

        private static function push(): void
        {
            \ob_start(
                new self(),
                Output::chunk(),
                Output::$removable ? \PHP_OUTPUT_HANDLER_STDFLAGS : \PHP_OUTPUT_HANDLER_FLUSHABLE
            );
        }

        /** The size from which on PHP calls the callback. */
        private static function chunk(): int
        {
            if (Output::$removable) {
                // The buffer replaces the one of `output_buffering`: what PHP would have flushed cannot be removed.
                return Output::$size ?: self::CHUNK;
            }
            // What leaves the buffer of `output_buffering` is output that flush() sends, also while that buffer exists.
            return Output::$hasOwn ? 1 : self::CHUNK;
        }

        /** Starts the buffer of php.ini for a request, as PHP does. */
        public static function begin(): void
        {
            if (Output::$hasOwn) {
                $handler = (string) \ini_get('output_handler');
                \ob_start($handler !== '' ? $handler : null, $handler !== '' ? 0 : Output::$size);
            }
        }

        /** Discards what was printed between two requests. */
        public static function discard(): void
        {
            if (Output::$kept !== '' || \ob_get_length() > 0) {
                Output::finish();
            }
        }

        /** Sends what left the buffers of the application; with $all also what is in the buffer of php.ini. */
        public static function flush(bool $all): void
        {
            $level = \count(\ob_list_handlers());
            if ($all && $level === 2 && Output::$hasOwn) {
                \ob_flush();
            }
            if ($level === 1) {
                \ob_flush();
            } elseif (Output::$kept !== '') {
                $kept = Output::$kept;
                Output::$kept = '';
                Worker::stream($kept);
            }
        }

        /** The callback of the buffer: PHP calls it when the buffer is full, flushed or removed. */
        public function __invoke(string $data, int $flags): string
        {
            $this->isRemoved = ($flags & \PHP_OUTPUT_HANDLER_FINAL) !== 0;
            if ($flags & \PHP_OUTPUT_HANDLER_CLEAN) {
                return '';
            }
            Output::$kept .= $data;
            if (Output::$over && Output::$booting) {
                // Output during the boot may explain why the worker cannot boot.
                $last = Output::$kept;
                Output::$kept = '';
                return $last;
            }
            if (($flags & \PHP_OUTPUT_HANDLER_FINAL) !== 0 && \count(\debug_backtrace(\DEBUG_BACKTRACE_IGNORE_ARGS, 2)) === 1) {
                // PHP itself removes the buffer: this is the end of the process' request.
                $last = Output::$booting ? Output::$kept : '';
                Worker::endLate(Output::$kept);
                Output::$over = true;
                Output::$kept = '';
                return $last;
            }
            if ($data !== '') {
                Output::$removals = 0;
            }
            if (
                !Output::$booting && !Output::$ours && !($flags & \PHP_OUTPUT_HANDLER_FINAL)
                && ($flags & \PHP_OUTPUT_HANDLER_FLUSH || \strlen(Output::$kept) >= self::CHUNK)
            ) {
                Worker::stream(Output::$kept);
                Output::$kept = '';
            }
            return '';
        }

        /**
         * Starts the buffer again after its removal. A loop such as `while (ob_get_level()) ob_end_clean();` must end, so a
         * second removal without output in between is final; later output is lost, see README.md.
         */
        public function __destruct()
        {
            if ($this->isRemoved && !Output::$over && ++Output::$removals < 2) {
                Output::push();
            }
        }

        /** Whether the application removed the buffer finally. */
        public static function isGone(): bool
        {
            return \count(\ob_list_handlers()) === 0;
        }

        /** Ends the application's buffers in order, and returns the output that was not sent yet. */
        public static function finish(): string
        {
            if (\count(\ob_list_handlers()) > 1 && \in_array('URL-Rewriter', \ob_list_handlers(), true)) {
                // PHP starts it once in a process.
                Worker::unrestorable('the URL rewriter of output_add_rewrite_var() or session.use_trans_sid');
            }
            while (($level = \count(\ob_list_handlers())) > 1) {
                @\ob_end_flush();
                if (\count(\ob_list_handlers()) >= $level) {
                    // The buffer cannot be removed, and PHP flushes it only when it ends: see endLate().
                    exit;
                }
            }
            if ($level === 1) {
                Output::$ours = true;
                \ob_flush();
                Output::$ours = false;
            }
            $body = Output::$kept;
            Output::$kept = '';
            Output::$removals = 0;
            if (Output::isGone() && !Output::$over) {
                Output::push();
            }
            return $body;
        }
    }

    /** Sessions: PHP keeps the session ID for as long as one script runs. */
    final class Session
    {
        /** Closes the session of a request as PHP does. False if there is none. */
        public static function close(): bool
        {
            if (\session_status() !== \PHP_SESSION_ACTIVE) {
                return false;
            }
            \session_write_close();
            return true;
        }

        /** Whether the handler is one of the application and stays: then the runtime sets the session ID of each request. */
        private static bool $isTold = false;
        /** The cookie that PHP sets because the runtime set the session ID. */
        private static string $cookie = '';
        /** The field line of the cache limiter, with the date of this file. */
        private static string $lastModified = '';

        public static function boot(): void
        {
            Session::$lastModified = 'Last-Modified: ' . \gmdate('D, d M Y H:i:s', (int) \filemtime(__FILE__)) . ' GMT';
        }

        /**
         * Resets the session state of PHP. The only function for that is session_destroy(), so it destroys an empty session
         * of a handler that stores nothing. Ini::restore() restores the settings.
         *
         * @param bool $keepHandler whether a handler of the application stays: it belongs to an object that later requests
         *     reuse, and PHP has no function to get it, so it could not be restored
         */
        public static function forget(bool $keepHandler): void
        {
            Session::$isTold = $keepHandler && \ini_get('session.save_handler') === 'user';
            if (\session_id() === '' && !isset($_SESSION)) {
                return;
            }
            if (\session_status() === \PHP_SESSION_ACTIVE) {
                \session_abort();
            }
            unset($GLOBALS['_SESSION']);
            if (Session::$isTold) {
                @\session_id('');
                return;
            }
            if ($keepHandler) {
                Ini::keepSession();
            }
            @\session_set_save_handler(new NoSession(), false);
            @\session_start([
                'use_cookies' => 0,
                'use_only_cookies' => 0,
                'cache_limiter' => '',
                'use_strict_mode' => 0,
                'gc_probability' => 0,
            ]);
            @\session_destroy();
            unset($GLOBALS['_SESSION']);
            Ini::restoreSession();
        }

        /** Sets the session ID of a request, where PHP does not read it. */
        public static function begin(): void
        {
            if (!Session::$isTold) {
                return;
            }
            $name = (string) \session_name();
            $id = $_COOKIE[$name] ?? '';
            $id = \is_string($id) && \preg_match('/^[A-Za-z0-9,-]{1,256}$/D', $id) ? $id : '';
            @\session_id($id);
            Session::$cookie = $id === '' ? '' : 'Set-Cookie: ' . \urlencode($name) . '=' . \urlencode($id);
        }

        /**
         * The field lines without a cookie with a session ID that the client has already, and with the script's own date: the
         * cache limiter takes the date of the script which PHP runs, the runtime.
         *
         * @param list<string> $lines
         * @return list<string>
         */
        public static function ownLines(array $lines): array
        {
            if ($lines !== [] && ($at = \array_search(Session::$lastModified, $lines, true)) !== false) {
                $time = @\filemtime((string) ($_SERVER['SCRIPT_FILENAME'] ?? '')) ?: \time();
                $lines[$at] = 'Last-Modified: ' . \gmdate('D, d M Y H:i:s', $time) . ' GMT';
            }
            $known = Session::$cookie;
            if ($known === '') {
                return $lines;
            }
            return \array_values(\array_filter(
                $lines,
                static fn (string $line): bool => $line !== $known && !\str_starts_with($line, "$known;")
            ));
        }
    }

    /** A session handler that stores nothing. */
    final class NoSession implements \SessionHandlerInterface
    {
        public function open(string $path, string $name): bool
        {
            return true;
        }

        public function close(): bool
        {
            return true;
        }

        public function read(string $id): string|false
        {
            return '';
        }

        public function write(string $id, string $data): bool
        {
            return true;
        }

        public function destroy(string $id): bool
        {
            return true;
        }

        public function gc(int $lifetime): int|false
        {
            return 0;
        }
    }

    /** The state of PHP that lasts from one request to the next, and that a new process would not have. */
    final class State
    {
        private static mixed $errorHandler = null;
        private static mixed $exceptionHandler = null;
        private static ?\Closure $ignore = null;
        private static string $locale = 'C';
        private static string $timezone = 'UTC';
        private static int $umask = 0022;
        private static string $folder = '/';
        /** `max_execution_time`: the seconds of CPU time that a request has */
        private static int $timeLimit = 0;
        /** Whether the administrator fixed it: then PHP has started the time when the process booted. */
        private static bool $timeIsFixed = false;
        private static float $cpuAtBoot = 0;
        private static ?string $encoding = null;
        public static bool $hasSession = false;
        /** @var array<string, string> */
        private static array $environment = [];
        /** @var array<mixed> */
        private static array $env = [];
        /** @var list<RandomNumbers> */
        private static array $random = [];
        /** @var array<string, true> the names of global variables */
        private static array $globals = [];
        private static int $globalCount = 0;

        /** Saves what is needed from before the application is loaded. */
        public static function boot(): void
        {
            State::$cpuAtBoot = State::cpuSeconds();
            StreamState::boot();
        }

        /** Saves the state when the application is ready. */
        public static function snapshot(): void
        {
            State::$errorHandler = \set_error_handler(null);
            \restore_error_handler();
            State::$exceptionHandler = \set_exception_handler(null);
            \restore_exception_handler();
            State::$locale = (string) \setlocale(\LC_ALL, '0');
            State::$timezone = \date_default_timezone_get();
            State::$umask = \umask();
            State::$folder = (string) \getcwd();
            State::$encoding = \function_exists('mb_internal_encoding') ? (string) \mb_internal_encoding() : null;
            State::$timeLimit = (int) \ini_get('max_execution_time');
            State::$timeIsFixed = \ini_set('max_execution_time', (string) State::$timeLimit) === false;
            State::$hasSession = \function_exists('session_status');
            State::$environment = \getenv();
            State::$env = $_ENV;
            Ini::snapshot(Worker::$mode === 'classic');
            State::$random = [new RandomNumbers(\mt_srand(...), \mt_rand(...), 64)];
            if (\function_exists('gmp_random_seed')) {
                // Seeding takes long, so the next numbers are always computed in advance.
                State::$random[] = new RandomNumbers(\gmp_random_seed(...), static fn (): int => \gmp_intval(\gmp_random_bits(31)), 1);
            }
            ExtensionState::snapshot();
            StreamState::snapshot();
            Libraries::save();
            State::rememberGlobals();
        }

        public static function rememberGlobals(): void
        {
            State::$globals = \array_fill_keys(\array_keys($GLOBALS), true);
            State::$globalCount = \count(State::$globals);
        }

        /** Closes the session of a request. False if there is none. */
        public static function closeSession(): bool
        {
            return State::$hasSession && Session::close();
        }

        /** Restores the saved state. */
        public static function restore(): void
        {
            State::handlers();
            if (State::$hasSession) {
                Session::forget(Worker::$mode !== 'classic');
            }
            Ini::restore();
            if (\setlocale(\LC_ALL, '0') !== State::$locale) {
                \setlocale(\LC_ALL, State::$locale);
            }
            if (\date_default_timezone_get() !== State::$timezone) {
                \date_default_timezone_set(State::$timezone);
            }
            if (State::$encoding !== null && \mb_internal_encoding() !== State::$encoding) {
                \mb_internal_encoding(State::$encoding);
            }
            if (\umask() !== State::$umask) {
                \umask(State::$umask);
            }
            if (\getcwd() !== State::$folder) {
                @\chdir(State::$folder);
            }
            if (($environment = \getenv()) !== State::$environment) {
                State::environment($environment);
            }
            $_ENV = State::$env;
            foreach (State::$random as $numbers) {
                $numbers->restore();
            }
            // Functions that restore state may be deprecated. Their messages are not for the handler of the application.
            \set_error_handler(State::$ignore ??= static fn (): bool => true);
            ExtensionState::restore();
            StreamState::restore();
            \restore_error_handler();
            \clearstatcache();
            \error_clear_last();
            State::restartTime();
        }

        /** Begins the time limit of the next request. Like PHP's own, it counts CPU time, which an idle worker does not use. */
        private static function restartTime(): void
        {
            if (!State::$timeIsFixed) {
                \ini_set('max_execution_time', (string) State::$timeLimit);
            } elseif (State::$timeLimit > 0 && State::cpuSeconds() - State::$cpuAtBoot > State::$timeLimit / 2) {
                Worker::leave('time');
            }
        }

        /** The CPU time that the process has used. */
        private static function cpuSeconds(): float
        {
            $used = \getrusage();
            return $used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec'] + ($used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']) / 1e6;
        }

        /** Removes the error and exception handlers that the request set, and restores those that it removed. */
        private static function handlers(): void
        {
            for ($i = 0; $i < 100; $i++) {
                $handler = \set_error_handler(null);
                \restore_error_handler();
                if ($handler === State::$errorHandler) {
                    break;
                }
                if ($handler === null) {
                    \set_error_handler(State::$errorHandler);
                    break;
                }
                \restore_error_handler();
            }
            for ($i = 0; $i < 100; $i++) {
                $handler = \set_exception_handler(null);
                \restore_exception_handler();
                if ($handler === State::$exceptionHandler) {
                    break;
                }
                if ($handler === null) {
                    \set_exception_handler(State::$exceptionHandler);
                    break;
                }
                \restore_exception_handler();
            }
        }

        /** @param array<string, string> $now */
        private static function environment(array $now): void
        {
            foreach ($now as $name => $value) {
                if (!isset(State::$environment[$name])) {
                    \putenv($name);
                }
            }
            foreach (State::$environment as $name => $value) {
                if (($now[$name] ?? null) !== $value) {
                    \putenv("$name=$value");
                }
            }
        }

        /**
         * The global variables that the request added.
         *
         * @return list<string>
         */
        public static function newGlobals(): array
        {
            if (\count($GLOBALS) === State::$globalCount) {
                return [];
            }
            $added = [];
            foreach (\array_keys($GLOBALS) as $name) {
                if (!isset(State::$globals[$name]) && $name !== '_SESSION') {
                    $added[] = (string) $name;
                }
            }
            return $added;
        }
    }

    /** Random numbers of a generator that a request may seed: the numbers of the next request do not depend on it. */
    final class RandomNumbers
    {
        private static string $seeds = '';
        private static int $seedsLeft = 0;
        /** @var list<int> the next numbers if no request used the generator, the last first */
        private array $unused = [];
        /** The number of requests that needed a new seed. */
        private int $seeded = 0;

        /**
         * @param \Closure(int): mixed $seed
         * @param \Closure(): int $next
         * @param int $computed after how many seeds the next numbers are computed in advance
         */
        public function __construct(private \Closure $seed, private \Closure $next, private int $computed)
        {
        }

        /**
         * Seeds the generator as in a new process. Seeding costs more than all other state, so it is skipped if the next
         * number shows that the request used none.
         */
        public function restore(): void
        {
            if ($this->unused !== [] && ($this->next)() === \array_pop($this->unused)) {
                return;
            }
            $seed = RandomNumbers::newSeed();
            ($this->seed)($seed);
            $this->unused = [];
            if (++$this->seeded % $this->computed === 0) {
                for ($i = 0; $i < 512; $i++) {
                    $this->unused[] = ($this->next)();
                }
                $this->unused = \array_reverse($this->unused);
                ($this->seed)($seed);
            }
        }

        /** A random seed, without a system call for each. */
        private static function newSeed(): int
        {
            if (RandomNumbers::$seedsLeft === 0) {
                RandomNumbers::$seeds = \random_bytes(4096);
                RandomNumbers::$seedsLeft = 1024;
            }
            return \unpack('V', RandomNumbers::$seeds, --RandomNumbers::$seedsLeft * 4)[1];
        }
    }

    /**
     * State of PHP's extensions that is no setting of php.ini and that PHP resets when a request ends: docs/resident-php.md
     * has the whole list.
     */
    final class ExtensionState
    {
        /** The numbers of the signals whose handlers are restored: HUP, INT, QUIT, USR1, USR2, ALRM, TERM, CHLD. */
        private const SIGNALS = [1, 2, 3, 10, 12, 14, 15, 17];

        /** @var list<array{\Closure, mixed, \Closure}> how to read a value, the value when the application is ready, how to set it */
        private static array $values = [];
        /** @var list<\Closure> how to reset what cannot be read */
        private static array $resets = [];

        public static function snapshot(): void
        {
            ExtensionState::$values = ExtensionState::$resets = [];
            foreach ([...self::ofCore(), ...self::ofText(), ...self::ofXml(), ...self::ofProcess()] as $extension => [$values, $resets]) {
                if (\extension_loaded(\strstr("$extension/", '/', true))) {
                    \set_error_handler(static fn (): bool => true);
                    foreach ($values() as [$read, $set]) {
                        ExtensionState::$values[] = [$read, $read(), $set];
                    }
                    \array_push(ExtensionState::$resets, ...$resets());
                    \restore_error_handler();
                }
            }
        }

        public static function restore(): void
        {
            foreach (ExtensionState::$values as [$read, $value, $set]) {
                if ($read() !== $value) {
                    $set($value);
                }
            }
            foreach (ExtensionState::$resets as $reset) {
                $reset();
            }
        }

        /** @return array<string, array{\Closure(): list<array{\Closure, \Closure}>, \Closure(): list<\Closure>}> by extension */
        private static function ofCore(): array
        {
            return [
                'standard' => [
                    static fn (): array => [
                        // The constant is deprecated.
                        [static fn () => \function_exists('assert_options') ? \assert_options(2) : null, static fn ($value) => \assert_options(2, $value)],
                    ],
                    static function (): array {
                        $flushes = (bool) \ini_get('implicit_flush');
                        $nothing = static fn () => null;
                        return [
                            static fn () => \strtok('', ' '),
                            static fn () => \ob_implicit_flush($flushes),
                            static fn () => \header_register_callback($nothing),
                            ...(\function_exists('http_clear_last_response_headers') ? [\http_clear_last_response_headers(...)] : []),
                        ];
                    },
                ],
                'SPL' => [static fn (): array => [[\spl_autoload_extensions(...), \spl_autoload_extensions(...)]], static fn (): array => []],
                'date' => [
                    static fn (): array => [[static fn () => \date_get_last_errors() !== false, static fn () => \date_create('@0')]],
                    static fn (): array => [],
                ],
                'json' => [static fn (): array => [[\json_last_error(...), static fn () => \json_encode(null)]], static fn (): array => []],
                'pcre' => [static fn (): array => [[\preg_last_error(...), static fn () => \preg_match('//', '')]], static fn (): array => []],
            ];
        }

        /** @return array<string, array{\Closure(): list<array{\Closure, \Closure}>, \Closure(): list<\Closure>}> by extension */
        private static function ofText(): array
        {
            return [
                'mbstring' => [
                    static fn (): array => [
                        [\mb_http_output(...), \mb_http_output(...)],
                        [\mb_detect_order(...), \mb_detect_order(...)],
                        [\mb_substitute_character(...), \mb_substitute_character(...)],
                        ...(\function_exists('mb_regex_encoding') ? [
                            [\mb_regex_encoding(...), \mb_regex_encoding(...)],
                            [\mb_regex_set_options(...), \mb_regex_set_options(...)],
                        ] : []),
                    ],
                    // The subject of mb_ereg_search() is replaced.
                    static fn (): array => \function_exists('mb_ereg_search_init') ? [static fn () => \mb_ereg_search_init('', '$^')] : [],
                ],
                'gettext' => [self::domains(...), static fn (): array => []],
                'intl' => [
                    static fn (): array => [[\intl_get_error_code(...), static fn () => \normalizer_is_normalized('')]],
                    static fn (): array => [],
                ],
            ];
        }

        /** The domains of gettext. PHP cannot list them, so the domains of the application and the last one of the request are restored. */
        private static function domains(): array
        {
            $current = static fn (): string => (string) \textdomain(null);
            // Nothing can remove a binding; without one, gettext uses this folder, and the encoding of the locale.
            $folder = (string) \bindtextdomain('apus-unbound', null);
            $base = [];
            foreach ([$current(), 'messages'] as $domain) {
                $base[$domain] = [\bindtextdomain($domain, null), \bind_textdomain_codeset($domain, null)];
            }
            return [[
                static function () use ($current, $base, $folder): array {
                    $domain = $current();
                    $bound = [$domain, \bindtextdomain($domain, null), \bind_textdomain_codeset($domain, null)];
                    return isset($base[$domain]) || [$bound[1], $bound[2]] !== [$folder, false] ? $bound : [$domain, null, null];
                },
                static function (array $value) use ($current, $base, $folder): void {
                    foreach ([$current() => [$folder, false], ...$base] as $domain => [$path, $encoding]) {
                        \bindtextdomain((string) $domain, (string) $path);
                        if (\bind_textdomain_codeset((string) $domain, null) !== $encoding) {
                            \bind_textdomain_codeset((string) $domain, $encoding === false ? (string) \nl_langinfo(\CODESET) : $encoding);
                        }
                    }
                    \textdomain($value[0]);
                },
            ]];
        }

        /** @return array<string, array{\Closure(): list<array{\Closure, \Closure}>, \Closure(): list<\Closure>}> by extension */
        private static function ofXml(): array
        {
            return [
                'libxml' => [
                    static fn (): array => [
                        [\libxml_use_internal_errors(...), \libxml_use_internal_errors(...)],
                        ...(\function_exists('libxml_get_external_entity_loader')
                            ? [[\libxml_get_external_entity_loader(...), \libxml_set_external_entity_loader(...)]] : []),
                    ],
                    static function (): array {
                        $resets = [\libxml_clear_errors(...)];
                        if (!\function_exists('libxml_get_external_entity_loader')) {
                            $resets[] = static fn () => \libxml_set_external_entity_loader(null);
                        }
                        if (\function_exists('libxml_disable_entity_loader')) {
                            $disabled = \libxml_disable_entity_loader(false);
                            \libxml_disable_entity_loader($disabled);
                            $resets[] = static fn () => \libxml_disable_entity_loader($disabled);
                        }
                        return $resets;
                    },
                ],
                'soap' => [
                    static fn (): array => [],
                    static function (): array {
                        $used = \use_soap_error_handler(false);
                        \use_soap_error_handler($used);
                        return [static fn () => \use_soap_error_handler($used)];
                    },
                ],
            ];
        }

        /** @return array<string, array{\Closure(): list<array{\Closure, \Closure}>, \Closure(): list<\Closure>}> by extension */
        private static function ofProcess(): array
        {
            return [
                'mysqli' => [
                    static fn (): array => [],
                    static function (): array {
                        $mode = (new \mysqli_driver())->report_mode;
                        return [static fn () => \mysqli_report($mode)];
                    },
                ],
                'openssl' => [
                    static fn (): array => [],
                    static fn (): array => [static function (): void {
                        while (\openssl_error_string() !== false) {
                        }
                    }],
                ],
                'sockets' => [static fn (): array => [], static fn (): array => [static fn () => \socket_clear_error()]],
                'imap' => [static fn (): array => [], static fn (): array => [\imap_errors(...), \imap_alerts(...)]],
                'snmp' => [
                    static fn (): array => [
                        [\snmp_get_quick_print(...), \snmp_set_quick_print(...)],
                        [\snmp_get_valueretrieval(...), \snmp_set_valueretrieval(...)],
                    ],
                    static fn (): array => [],
                ],
                'pcntl' => [self::signals(...), static fn (): array => []],
            ];
        }

        /** Handlers of signals. php-cgi has this extension; PHP-FPM does not. */
        private static function signals(): array
        {
            $handlers = static fn (): array => \array_map(\pcntl_signal_get_handler(...), self::SIGNALS);
            return [
                [static fn () => \pcntl_async_signals(), static fn (bool $value) => \pcntl_async_signals($value)],
                [$handlers, static function (array $base) use ($handlers): void {
                    foreach (self::SIGNALS as $i => $signal) {
                        if ($handlers()[$i] !== $base[$i]) {
                            \pcntl_signal($signal, $base[$i]);
                        }
                    }
                }],
            ];
        }
    }

    /** Stream wrappers, filters, and the contexts that streams use by default. */
    final class StreamState
    {
        /** @var list<string> the wrappers of PHP, before the application is loaded */
        private static array $builtIn = [];
        /** @var list<string> the wrappers when the application is ready, those that it registered first */
        private static array $wrappers = [];
        /** @var list<string> the wrappers that the application registered or replaced */
        private static array $registered = [];
        /** @var list<string> */
        private static array $filters = [];
        /** @var array<string, mixed> options and callback of the default context */
        private static array $context = [];
        /** @var resource|null the context of libxml */
        private static $xmlContext = null;

        /** Saves the wrappers of PHP before the application is loaded. */
        public static function boot(): void
        {
            StreamState::$builtIn = \stream_get_wrappers();
        }

        public static function snapshot(): void
        {
            $now = \stream_get_wrappers();
            // PHP appends a wrapper that is registered, also in the place of another. What is still in order is PHP's own.
            $own = [];
            foreach (StreamState::$builtIn as $name) {
                if ($name === ($now[\count($own)] ?? null)) {
                    $own[] = $name;
                }
            }
            StreamState::$registered = \array_values(\array_diff($now, $own));
            // `php` is last: whether a request replaced the last wrapper cannot be seen in the list.
            $order = StreamState::$registered === [] ? [] : $own;
            foreach (\in_array('php', $own, true) ? [...\array_diff($order, ['php']), 'php'] : $order as $name) {
                \stream_wrapper_unregister($name);
                \stream_wrapper_restore($name);
            }
            StreamState::$wrappers = \stream_get_wrappers();
            StreamState::$filters = \stream_get_filters();
            StreamState::$context = \stream_context_get_params(\stream_context_get_default());
            StreamState::$xmlContext = XmlContext::find();
        }

        public static function restore(): void
        {
            $now = \stream_get_wrappers();
            if (\end($now) === 'php' && !\in_array('php', StreamState::$registered, true)) {
                \stream_wrapper_unregister('php');
                \stream_wrapper_restore('php');
            }
            if ($now !== StreamState::$wrappers) {
                StreamState::restoreWrappers($now);
            }
            if (\stream_get_filters() !== StreamState::$filters) {
                $added = \array_diff(\stream_get_filters(), StreamState::$filters);
                StreamState::$filters = \stream_get_filters();
                // The class of a filter is loaded once, too. Its name stays.
                Worker::leaked('stream filter ' . \implode(', ', $added));
            }
            if (\stream_context_get_params(\stream_context_get_default()) !== StreamState::$context) {
                \stream_context_set_default(StreamState::$context['options']);
                if (\stream_context_get_params(\stream_context_get_default()) !== StreamState::$context) {
                    // PHP has no function that removes an option.
                    Worker::unrestorable('options of the default stream context');
                }
            }
            if (StreamState::$xmlContext !== null) {
                \libxml_set_streams_context(StreamState::$xmlContext);
            }
        }

        /** @param list<string> $now */
        private static function restoreWrappers(array $now): void
        {
            $registered = StreamState::$registered;
            foreach (\array_diff($now, StreamState::$wrappers) as $name) {
                \stream_wrapper_unregister($name);
            }
            foreach (\array_diff(StreamState::$wrappers, $registered) as $name) {
                if (\in_array($name, $now, true)) {
                    \stream_wrapper_unregister($name);
                }
                \stream_wrapper_restore($name);
            }
            if (\stream_get_wrappers() !== StreamState::$wrappers || \array_slice($now, 0, \count($registered)) !== $registered) {
                Worker::unrestorable('stream wrapper of the application');
            }
        }
    }

    /** A stream wrapper that finds the context that libxml uses for streams: PHP has no function for that. */
    final class XmlContext
    {
        private const SCHEME = 'apus-xml-context';

        /** @var resource|null */
        public $context;
        /** @var resource|null */
        private static $found = null;

        /** @return resource|null */
        public static function find()
        {
            if (!\extension_loaded('libxml')) {
                return null;
            }
            $address = self::SCHEME . '://x';
            \set_error_handler(static fn (): bool => true);
            $internal = \libxml_use_internal_errors(true);
            $disabled = \function_exists('libxml_disable_entity_loader') && \libxml_disable_entity_loader(false);
            \stream_wrapper_register(self::SCHEME, self::class);
            try {
                match (true) {
                    \extension_loaded('dom') => (new \DOMDocument())->load($address),
                    \extension_loaded('simplexml') => \simplexml_load_file($address),
                    \extension_loaded('xmlreader') => (new \XMLReader())->open($address),
                    default => null,
                };
            } catch (Throwable) {
                // A loader of the application may throw.
            } finally {
                \stream_wrapper_unregister(self::SCHEME);
                if ($disabled) {
                    \libxml_disable_entity_loader(true);
                }
                \libxml_clear_errors();
                \libxml_use_internal_errors($internal);
                \restore_error_handler();
            }
            [$found, self::$found] = [self::$found, null];
            return $found ?? \stream_context_get_default();
        }

        public function stream_open(string $path, string $mode, int $options, ?string &$opened): bool
        {
            self::$found = $this->context;
            return false;
        }

        /** libxml opens only what exists. */
        public function url_stat(string $path, int $flags): array|false
        {
            return ['size' => 1, 'mode' => 0100444];
        }
    }

    /** A connection of Illuminate that is checked if it was idle, and that repeats no statement that may have taken effect. */
    trait CheckedConnection
    {
        /** When it was last used: seconds of the monotonic clock. */
        private float $usedAt = 0;

        protected function run($query, $bindings, \Closure $callback)
        {
            // A database closes connections that are idle, but not within a second.
            if ($this->transactions === 0 && $this->pdo instanceof \PDO && \hrtime(true) / 1e9 - $this->usedAt > 1) {
                $this->ping($this->pdo);
            }
            try {
                return parent::run($query, $bindings, $callback);
            } finally {
                $this->usedAt = \hrtime(true) / 1e9;
            }
        }

        private function ping(\PDO $pdo): void
        {
            try {
                $this->withoutWarnings(static fn () => $pdo->query('SELECT 1')->closeCursor());
            } catch (\PDOException) {
                $this->reopen();
            }
        }

        private function reopen(): void
        {
            Log::info("database {$this->getName()}: the connection was lost and is opened again");
            $this->reconnect();
        }

        /** mysqlnd raises a warning about a lost connection besides the exception. */
        private function withoutWarnings(\Closure $do): mixed
        {
            \set_error_handler(Db::isWarningOfLoss(...));
            try {
                return $do();
            } finally {
                \restore_error_handler();
            }
        }

        protected function runQueryCallback($query, $bindings, \Closure $callback)
        {
            return $this->withoutWarnings(fn () => parent::runQueryCallback($query, $bindings, $callback));
        }

        protected function createTransaction()
        {
            $this->withoutWarnings(fn () => parent::createTransaction());
        }

        protected function tryAgainIfCausedByLostConnection(
            \Illuminate\Database\QueryException $e,
            $query,
            $bindings,
            \Closure $callback
        ) {
            $cause = $e->getPrevious();
            if (!$cause instanceof \PDOException || !Db::isLost($cause)) {
                throw $e;
            }
            if (!Db::mayRepeat($cause, $query)) {
                $this->disconnect();
                throw $e;
            }
            $this->reopen();
            return $this->runQueryCallback($query, $bindings, $callback);
        }
    }

    /** The libraries whose state is restored after each request, as PHP's own is. */
    final class Libraries
    {
        /** @var list<LibraryState> */
        private static array $states = [];

        public static function add(LibraryState $state): void
        {
            Libraries::$states[] = $state;
        }

        public static function save(): void
        {
            foreach (Libraries::$states as $state) {
                $state->save();
            }
        }

        /** Loads a package of Illuminate: with Composer's autoloader, or the autoloader of Debian's package. */
        public static function load(string $package, string $class): void
        {
            if (!\class_exists($class) && \stream_resolve_include_path("Illuminate/$package/autoload.php") !== false) {
                require_once "Illuminate/$package/autoload.php";
            }
            if (!\class_exists($class)) {
                $name = 'illuminate-' . \strtolower($package);
                throw new \LogicException("$class is missing: apt-get install php-$name, or composer require " . \strtr($name, '-', '/'));
            }
        }

        /** False if the state of a library could not be restored, which is logged. */
        public static function restore(): bool
        {
            $restored = true;
            foreach (Libraries::$states as $state) {
                try {
                    $state->restore();
                } catch (Throwable $error) {
                    Log::error("the state of a library cannot be restored: $error");
                    $restored = false;
                }
            }
            return $restored;
        }
    }

    /** The worker: its boot, its loop of requests, and its end. */
    final class Worker
    {
        private const BOOTING = 0;
        private const IDLE = 1;
        private const WORKING = 2;
        /** The response was sent, and the application continues. */
        private const FINISHED = 3;
        private const ENDED = 4;

        /** The types of fatal errors. */
        private const FATAL = \E_ERROR | \E_PARSE | \E_CORE_ERROR | \E_COMPILE_ERROR | \E_USER_ERROR | \E_RECOVERABLE_ERROR;

        /** The seconds that a script may continue after its client disconnected. */
        private const GRACE = 2;

        /** The number of requests between two garbage collections. */
        private const COLLECT = 256;

        /** Whether this is a worker of Apus; otherwise the file is a library under plain FastCGI. */
        public static bool $resident = false;
        public static string $mode = 'worker';
        public static string $script = '';
        public static bool $development = false;
        /** Whether STOP was read. */
        public static bool $stopping = false;
        /** Whether the client disconnected. */
        public static bool $cancelled = false;
        /** @var array<string, string>|null the current event */
        public static ?array $event = null;
        /** The message of an event, or the payload of a task. */
        public static string $message = '';

        private static int|float $cancelledAt = 0;
        /** @var resource|null */
        private static $errorLog = null;
        private static Wire $wire;
        private static int $pid = 0;
        private static int $phase = self::BOOTING;
        private static bool $streaming = false;
        /** Whether the request failed after a part of the response was sent. */
        private static bool $broken = false;
        private static string $leaks = 'warn';
        private static ?bool $keep = null;
        private static int $memory = 0;
        private static int $served = 0;
        private static string $powered = '';
        /** The reason to end after this response. */
        private static ?string $leave = null;
        private static bool $isHead = false;
        private static bool $safe = false;
        /** @var array<string, bool> classic: whether a front controller defines constants */
        private static array $defines = [];
        /** The output after an error that discarded the output buffers. */
        private static ?string $finalOutput = null;
        /** @var array<string, true> the leaks that were logged */
        private static array $logged = [];
        /** @var list<array{callable, array<mixed>}> the functions that run at the end of the request */
        private static array $atEnd = [];

        /** Whether this file is the script of a FastCGI request from Apus. */
        public static function isEntryPoint(string $file): bool
        {
            if (\realpath((string) ($_SERVER['SCRIPT_FILENAME'] ?? '')) !== \realpath($file)) {
                return false;
            }
            Worker::$resident = Worker::parameter('APUS_SOCKET') !== '' && Worker::parameter('APUS_TOKEN') !== '';
            if (!Worker::$resident) {
                \http_response_code(403);
                echo "This file is the runtime of resident workers and is started by Apus.\n";
            }
            return Worker::$resident;
        }

        private static function parameter(string $name): string
        {
            return (string) ($_SERVER[$name] ?? (\getenv($name) ?: ''));
        }

        /**
         * Makes PHP write its error log to a pipe of Apus, unless php.ini sets another place. Over FastCGI, PHP would send it in
         * pieces of some kilobytes, and lose the last one when it is killed.
         */
        private static function openErrorLog(string $pipe): void
        {
            if ($pipe !== '' && (string) \ini_get('error_log') === '') {
                // It stays open, as PHP would wait for a reader if Apus was gone.
                Worker::$errorLog = @\fopen($pipe, 'r+') ?: null;
                if (Worker::$errorLog !== null) {
                    @\ini_set('error_log', $pipe);
                }
            }
        }

        /** Connects and sends HELLO. False if that fails. */
        public static function boot(): bool
        {
            $socket = Worker::parameter('APUS_SOCKET');
            State::boot();
            Worker::openErrorLog(Worker::parameter('APUS_ERROR_LOG'));
            $real = \realpath(Worker::parameter('APUS_SCRIPT'));
            Worker::$script = $real === false ? Worker::parameter('APUS_SCRIPT') : $real;
            Worker::$mode = Worker::parameter('APUS_MODE');
            Worker::$development = Worker::parameter('APUS_ENV') === 'development';
            Worker::$leaks = Worker::parameter('APUS_LEAKS') ?: 'warn';
            Worker::$keep = match (Worker::parameter('APUS_KEEP')) {
                '1' => true,
                '0' => false,
                default => null,
            };
            Worker::$memory = (int) Worker::parameter('APUS_MEMORY');
            Worker::$powered = \ini_get('expose_php') ? 'X-Powered-By: PHP/' . \PHP_VERSION : '';
            if (Worker::parameter('APUS_FRESH') === '1') {
                Worker::dropChangedCode();
            }
            Session::boot();
            Worker::$wire = Wire::connect($socket);
            Worker::$pid = (int) \getmypid();
            Output::start(!Functions::$levelIsReplaced);
            \register_shutdown_function([self::class, 'shutdown']);
            $lines = [
                'wire' => '1',
                'token' => Worker::parameter('APUS_TOKEN'),
                'pid' => (string) Worker::$pid,
                'php' => \PHP_VERSION,
                'sapi' => \PHP_SAPI,
                'mode' => Worker::$mode,
                'script' => Worker::$script,
                'uploads' => Functions::$uploadsAreReplaced || Worker::$mode === 'native' ? 'yes' : 'no',
            ];
            $text = '';
            foreach ($lines as $key => $value) {
                $text .= "$key: $value\n";
            }
            Worker::$wire->send(Wire::HELLO, $text);
            Superglobals::boot(Worker::$mode, Worker::$script);
            if (!\in_array(Worker::$mode, ['worker', 'classic', 'native'], true)) {
                Worker::fail('unknown mode ' . Worker::$mode);
                return false;
            }
            if (!\is_file(Worker::$script) || !\is_readable(Worker::$script)) {
                Worker::fail('the script ' . Worker::$script . ' does not exist or cannot be read');
                return false;
            }
            @\chdir(\dirname(Worker::$script));
            return true;
        }

        /**
         * Invalidates changed files in opcache. opcache_reset() would wait until no process uses the cache, which never
         * happens with resident workers, and then kill them.
         */
        private static function dropChangedCode(): void
        {
            if (!\function_exists('opcache_get_status')) {
                return;
            }
            $status = @\opcache_get_status(true);
            \clearstatcache(true);
            foreach (\is_array($status) ? $status['scripts'] ?? [] : [] as $path => $script) {
                if (@\filemtime((string) $path) !== ($script['timestamp'] ?? null)) {
                    @\opcache_invalidate((string) $path, true);
                }
            }
        }

        /** Reports that the application is loaded. */
        public static function ready(string $lines = ''): void
        {
            $printed = Output::finish();
            if (\trim($printed) !== '') {
                Worker::log(4, 'printed while the application was loaded: ' . \substr($printed, 0, 4096));
            }
            Output::$booting = false;
            Worker::$phase = self::IDLE;
            State::snapshot();
            Worker::$wire->send(Wire::READY, $lines);
        }

        public static function isReady(): bool
        {
            return Worker::$phase !== self::BOOTING;
        }

        /** Waits for the next request or event and prepares it. False if there are no more. */
        public static function next(): bool
        {
            if (Worker::$phase === self::BOOTING) {
                Worker::ready();
            }
            if (Worker::$phase === self::ENDED) {
                return false;
            }
            try {
                while (true) {
                    [$type, $flags, $parameters, $body] = Worker::$wire->read();
                    switch ($type) {
                        case Wire::REQUEST:
                            Worker::begin($flags, $parameters, $body);
                            return true;
                        case Wire::EVENT:
                            Worker::begin(0, $parameters, '');
                            Worker::$event = $_SERVER;
                            Worker::$message = $body;
                            return true;
                        case Wire::PING:
                            Worker::$wire->send(Wire::PONG, $body);
                            break;
                        case Wire::CANCEL:
                            break;
                        case Wire::STOP:
                            Worker::bye('stop');
                            return false;
                        default:
                            throw new ConnectionLost("unexpected frame $type");
                    }
                }
            } catch (ConnectionLost) {
                Worker::$phase = self::ENDED;
                return false;
            }
        }

        private static function begin(int $flags, string $parameters, string $inline): void
        {
            $server = @\unserialize($parameters, ['allowed_classes' => false]);
            if (!\is_array($server)) {
                throw new ConnectionLost('parameters are malformed');
            }
            // Output and header fields after the last response are discarded.
            Output::discard();
            \header_remove();
            \http_response_code(200);
            if (Worker::$powered !== '') {
                \header(Worker::$powered);
            }
            Worker::$phase = self::WORKING;
            Worker::$streaming = false;
            Worker::$broken = false;
            Worker::$cancelled = false;
            Worker::$event = null;
            Worker::$isHead = ($flags & 2) !== 0;
            $method = $server['REQUEST_METHOD'] ?? '';
            Worker::$safe = $method === 'GET' || $method === 'HEAD';
            $pulled = ($flags & Wire::FIRST) !== 0;
            $body = new RequestBody($inline, $pulled ? Worker::$wire : null);
            Output::begin();
            // Warnings about input of the client are shown by PHP, not by the application's error handler.
            \set_error_handler(null);
            try {
                Superglobals::set($server, $body);
            } finally {
                \restore_error_handler();
            }
            if (State::$hasSession) {
                Session::begin();
            }
            if ($inline !== '' || $pulled) {
                Input::install($body);
            }
        }

        /** Sends a part of the body before it is complete. */
        public static function stream(string $data): void
        {
            if (Worker::$phase !== self::WORKING) {
                return;
            }
            Worker::noticeCancel();
            if (Worker::$streaming) {
                if ($data !== '' && !Worker::$cancelled) {
                    Worker::$wire->send(Wire::CHUNK, $data);
                }
                return;
            }
            Worker::$streaming = true;
            Worker::$wire->respond(Worker::status(), Worker::fields(), $data, Wire::FIRST);
        }

        /** Sends an interim response with the header fields so far. False if there cannot be one. */
        public static function inform(int $status): bool
        {
            $isOne = $status >= 100 && $status <= 199 && $status !== 101;
            if (!$isOne || Worker::$phase !== self::WORKING || Worker::$streaming || Worker::$event !== null) {
                return false;
            }
            $lines = \array_diff(\headers_list(), [Worker::$powered]);
            Worker::$wire->send(Wire::INTERIM, \pack('v', $status) . \implode("\r\n", $lines) . ($lines === [] ? '' : "\r\n"));
            return true;
        }

        /**
         * The header fields of the response so far, by their names.
         *
         * @return array<string, string>
         */
        public static function responseHeaders(): array
        {
            $fields = [];
            foreach (\headers_list() as $line) {
                [$name, $value] = \explode(':', $line, 2) + [1 => ''];
                $fields[$name] = \ltrim($value);
            }
            return $fields;
        }

        private static function noticeCancel(): void
        {
            while (!Worker::$cancelled && Worker::$wire->readable()) {
                [$type] = Worker::$wire->read();
                if ($type === Wire::CANCEL) {
                    Worker::$cancelled = true;
                    Worker::$cancelledAt = \hrtime(true);
                    // The client disconnected. PHP would end the script, unless it called ignore_user_abort(true). Here that would
                    // end the worker, so the script gets time to finish.
                    if (!\ini_get('ignore_user_abort')) {
                        \set_time_limit(self::GRACE);
                    }
                } elseif ($type === Wire::STOP) {
                    Worker::$stopping = true;
                } else {
                    throw new ConnectionLost("unexpected frame $type");
                }
            }
        }

        private static function status(): int
        {
            $status = (int) \http_response_code();
            return $status >= 200 && $status <= 999 || $status === 101 && Worker::$event !== null ? $status : 500;
        }

        /** The field lines of the response. Its type follows the rules of PHP's own SAPIs. */
        private static function fields(): string
        {
            $block = \implode("\r\n", Session::ownLines(\headers_list())) . "\r\n";
            if (\stripos("\n$block", "\nContent-Type:") !== false) {
                // PHP does not send a type with 304: it would replace the type of the stored response. An empty one says
                // nothing.
                $none = \http_response_code() === 304 ? '[^\r]*' : '[ \t]*';
                $block = (string) \preg_replace("/^Content-Type:$none\r\n/im", '', $block);
            } elseif (\http_response_code() !== 304 && ($type = Worker::defaultType()) !== '') {
                $block = ($block === "\r\n" ? '' : $block) . "Content-type: $type\r\n";
            }
            return $block === "\r\n" ? '' : $block;
        }

        private static function defaultType(): string
        {
            $type = (string) \ini_get('default_mimetype');
            $charset = (string) \ini_get('default_charset');
            return $charset !== '' && \strncasecmp($type, 'text/', 5) === 0 ? "$type; charset=$charset" : $type;
        }

        /** Handles an uncaught exception as PHP does. */
        public static function caught(Throwable $error): void
        {
            $handler = \set_exception_handler(null);
            \restore_exception_handler();
            if ($handler !== null) {
                try {
                    $handler($error);
                    return;
                } catch (Throwable $second) {
                    $error = $second;
                }
            }
            Worker::$broken = Worker::$streaming;
            // PHP leaves the status where it shows the error.
            $isShown = (bool) \ini_get('display_errors');
            if (!Worker::$streaming && !$isShown && \http_response_code() === 200) {
                \http_response_code(500);
            }
            \error_log('PHP Fatal error:  Uncaught ' . $error);
            if ($isShown) {
                Worker::showUncaught($error);
            }
        }

        /** Prints an uncaught exception as PHP does, without the frames of the runtime. */
        private static function showUncaught(Throwable $error): void
        {
            $own = \preg_quote(__FILE__, '/');
            $frame = 0;
            $text = \preg_replace_callback(
                "/^#\\d+ (?!$own\\()|^#\\d+ $own\\(.*\\n|^Stack trace:$/m",
                static function (array $match) use (&$frame): string {
                    $isFrame = \str_ends_with($match[0], ' ');
                    $frame = $match[0][0] === '#' ? $frame : 0;
                    return $isFrame ? '#' . $frame++ . ' ' : (\str_ends_with($match[0], "\n") ? '' : $match[0]);
                },
                "Uncaught $error\n  thrown"
            );
            echo Worker::shown((string) $text, $error->getFile(), $error->getLine());
        }

        /** A fatal error as PHP shows it. */
        private static function shown(string $text, string $file, int $line): string
        {
            [$before, $after] = [\ini_get('error_prepend_string'), \ini_get('error_append_string')];
            return \ini_get('html_errors')
                ? "$before<br />\n<b>Fatal error</b>:  " . \htmlspecialchars($text) . " in <b>$file</b> on line <b>$line</b><br />\n$after"
                : "$before\nFatal error: $text in $file on line $line\n$after";
        }

        /** Ends a request that completed. */
        public static function finish(): void
        {
            if (Worker::$phase !== self::WORKING && Worker::$phase !== self::FINISHED) {
                return;
            }
            try {
                if (Worker::$atEnd !== []) {
                    Worker::runAtEnd();
                }
                if (Task::hasAfter()) {
                    Worker::finishEarly();
                    Task::runAfter();
                }
                Worker::sendResponse();
            } catch (ConnectionLost) {
                Worker::$phase = self::ENDED;
            }
            if (Worker::$phase === self::IDLE && ++Worker::$served % self::COLLECT === 0) {
                \gc_collect_cycles();
            }
        }

        /** Sends the response, restores the state, and decides whether the worker continues. */
        private static function sendResponse(): void
        {
            $body = Worker::$finalOutput ?? '';
            if (Worker::$finalOutput === null) {
                try {
                    $body = Output::finish();
                    $more = State::closeSession();
                } catch (Throwable $error) {
                    // A callback of the application's buffers or its session handler threw it.
                    Worker::caught($error);
                    $more = true;
                }
                $body .= $more ? Output::finish() : '';
            }
            $early = Worker::$phase === self::FINISHED;
            $status = 0;
            $fields = '';
            if (!$early && !Worker::$streaming) {
                $status = Worker::status();
                $fields = Worker::fields();
            }
            if (\headers_sent($file, $line)) {
                // The output bypassed the runtime: this process cannot set header fields any more.
                Worker::$leave ??= 'error';
                if ($file !== '' && Worker::$finalOutput === null) {
                    Worker::log(3, "$file:$line printed after all output buffers were removed; see README.md, Output");
                    [$status, $body] = [500, ''];
                }
            }
            Worker::cleanUp();
            $leave = Worker::$leave ?? (Worker::$stopping ? 'stop' : null);
            $flag = $leave === null ? 0 : Wire::LEAVING;
            $bye = $leave === null ? '' : \pack('VCCv', \strlen($leave), Wire::BYE, 0, 0) . $leave;
            Worker::$phase = $leave === null ? self::IDLE : self::ENDED;
            if ($early) {
                $leave === null ? Worker::$wire->send(Wire::READY) : Worker::$wire->send(Wire::BYE, $leave);
            } elseif (Worker::$streaming) {
                if ($body !== '') {
                    Worker::$wire->send(Wire::CHUNK, $body);
                }
                Worker::$wire->send(Wire::CHUNK, '', Wire::FIRST | $flag | (Worker::$broken ? Wire::TRUNCATED : 0));
                if ($leave !== null) {
                    Worker::$wire->send(Wire::BYE, $leave);
                }
            } else {
                Worker::$wire->respond($status, $fields, $body, $flag, $bye);
            }
        }

        /** Removes the state of this request. */
        private static function cleanUp(): void
        {
            Input::remove();
            App::$current?->endRequest();
            Db::endRequest();
            if (!Libraries::restore()) {
                Worker::$leave ??= 'error';
            }
            if (Request::$temporary !== []) {
                Request::removeUploads();
            }
            State::restore();
            Worker::$atEnd = [];
            if (Worker::$mode !== 'classic') {
                $added = Worker::$leaks === 'ignore' ? [] : State::newGlobals();
                if ($added !== []) {
                    Worker::leaked('global variable $' . \implode(', $', $added));
                }
            }
            if (Worker::$memory > 0 && \memory_get_usage() > Worker::$memory) {
                Worker::$leave ??= 'memory';
            }
        }

        /** Handles a leak: state of a request that the next one would see. */
        public static function leaked(string $what): void
        {
            if (Worker::$leaks === 'refuse') {
                Worker::$leave ??= 'leak';
            } elseif (isset(Worker::$logged[$what]) || Worker::$leaks === 'ignore') {
                return;
            }
            Worker::$logged[$what] = true;
            Worker::log(4, "left behind by a request: $what");
        }

        /** Ends the worker after this response, with a reason of BYE. */
        public static function leave(string $reason): void
        {
            Worker::$leave ??= $reason;
        }

        /** Handles state of PHP that a request changed and that cannot be restored: the next request gets a new process. */
        public static function unrestorable(string $what): void
        {
            if (Worker::$leaks !== 'ignore') {
                Worker::$leave ??= 'leak';
                Worker::log(4, "left behind by a request: $what; the worker is replaced");
            }
        }

        /** Writes a line to the server's log, with a level of RFC 5424. */
        public static function log(int $level, string $text): void
        {
            Worker::$wire->queue(Wire::LOG, \chr($level) . $text);
            if (Worker::$phase !== self::WORKING) {
                Worker::$wire->flush();
            }
        }

        public static function command(int $kind, string $name, string $bytes, int $flags = 0): void
        {
            Worker::$wire->queue(Wire::COMMAND, \chr($kind) . \pack('V', \strlen($name)) . $name . $bytes, $flags);
        }

        /** Sends the response now; the application continues. False if it was sent before. */
        public static function finishEarly(): bool
        {
            if (Worker::$phase !== self::WORKING) {
                return false;
            }
            $body = Output::finish();
            if (Worker::$streaming) {
                if ($body !== '') {
                    Worker::$wire->send(Wire::CHUNK, $body);
                }
                Worker::$wire->send(Wire::CHUNK, '', Wire::FIRST | Wire::CONTINUES_WORKING);
            } else {
                Worker::$wire->respond(Worker::status(), Worker::fields(), $body, Wire::CONTINUES_WORKING);
            }
            Worker::$phase = self::FINISHED;
            return true;
        }

        /** Sends the output so far. */
        public static function flush(bool $all = true): void
        {
            if (Worker::$phase === self::WORKING) {
                Output::flush($all);
                // PHP's limit counts only CPU time: a script that sleeps between outputs ends here.
                if (
                    Worker::$cancelled && !\ini_get('ignore_user_abort')
                    && \hrtime(true) - Worker::$cancelledAt > self::GRACE * 1_000_000_000
                ) {
                    exit;
                }
            }
        }

        /** Sends the head of the response, before any output. */
        public static function sendHead(): void
        {
            if (Worker::$phase === self::WORKING && !Worker::$streaming) {
                Worker::stream('');
            }
        }

        /** Native: the loop of requests. */
        public static function serve(App $app): void
        {
            Worker::ready($app->declaration());
            while (Worker::next()) {
                try {
                    $response = Worker::$event !== null ? $app->event(Worker::$event, Worker::$message) : $app->handle(\Apus\Request::current());
                    $response->send();
                } catch (Throwable $error) {
                    Worker::caught($error);
                }
                Worker::finish();
            }
        }

        public static function registerShutdown(callable $function, mixed ...$arguments): void
        {
            // Functions that are registered while the application is loaded belong to the process.
            Worker::$phase === self::BOOTING ? \register_shutdown_function($function, ...$arguments) : Worker::atEnd($function, $arguments);
        }

        /** @param array<mixed> $arguments */
        public static function atEnd(callable $function, array $arguments): void
        {
            Worker::$atEnd[] = [$function, $arguments];
        }

        private static function runAtEnd(): void
        {
            while (Worker::$atEnd !== []) {
                [$function, $arguments] = \array_shift(Worker::$atEnd);
                try {
                    $function(...$arguments);
                } catch (Throwable $error) {
                    Worker::caught($error);
                }
            }
        }

        /** The first shutdown function that PHP calls: the functions of the application follow, then the second part. */
        public static function shutdown(): void
        {
            if (Worker::$phase === self::ENDED || \getmypid() !== Worker::$pid) {
                // A process that the application forked must not use the connection.
                Worker::$phase = self::ENDED;
                Output::$over = true;
                return;
            }
            $error = \error_get_last();
            if ($error !== null && \str_starts_with($error['message'], 'Allowed memory size')) {
                \ini_set('memory_limit', '-1');
            }
            \register_shutdown_function([self::class, 'end'], $error);
        }

        /** @param array<string, mixed>|null $error */
        public static function end(?array $error): void
        {
            Output::$over = true;
            $isFatal = $error !== null && ($error['type'] & self::FATAL) !== 0;
            try {
                switch (Worker::$phase) {
                    case self::BOOTING:
                        Worker::fail($isFatal
                            ? $error['message'] . ' in ' . $error['file'] . ':' . $error['line']
                            : Worker::notReady((string) \ob_get_contents()));
                        break;
                    case self::IDLE:
                        Worker::bye('exit');
                        break;
                    case self::WORKING:
                    case self::FINISHED:
                        Worker::$leave = $isFatal ? 'error' : 'exit';
                        Worker::exited($error, $isFatal);
                        break;
                }
            } catch (ConnectionLost) {
                // The connection to Apus is lost.
            }
            Worker::$phase = self::ENDED;
        }

        /**
         * Ends the request if PHP is about to end without calling end(), as a shutdown function of the application called
         * exit(), which skips all later ones. Output buffering is over at this point.
         */
        public static function endLate(string $body): void
        {
            try {
                if (Worker::$phase === self::WORKING && !Worker::$streaming) {
                    Worker::$wire->respond(Worker::status(), Worker::fields(), $body, Wire::LEAVING);
                } elseif (Worker::$phase === self::WORKING) {
                    if ($body !== '') {
                        Worker::$wire->send(Wire::CHUNK, $body);
                    }
                    Worker::$wire->send(Wire::CHUNK, '', Wire::FIRST | Wire::LEAVING);
                }
                Input::remove();
                Request::removeUploads();
                if (Worker::$phase === self::BOOTING) {
                    Worker::fail(Worker::notReady($body));
                } else {
                    Worker::bye('exit');
                }
            } catch (ConnectionLost) {
                // The connection to Apus is lost.
            }
        }

        /** @param array<string, mixed>|null $error */
        private static function exited(?array $error, bool $isFatal): void
        {
            $isAgain = $isFatal && Worker::$mode === 'classic' && Worker::$served > 0
                && \preg_match('/^Cannot (re)?declare /', $error['message']) === 1;
            if ($isAgain && Worker::$safe && !Worker::$streaming) {
                // The script cannot be included twice: another worker must handle the request.
                Worker::bye('again');
                return;
            }
            Worker::$broken = $isFatal && Worker::$streaming;
            // PHP leaves the status where it shows the error, but not where the script could only not be included again.
            $isShown = \ini_get('display_errors') && !$isAgain;
            if ($isFatal && !Worker::$streaming && !$isShown && \http_response_code() === 200) {
                \http_response_code(500);
            }
            if ($isFatal && \str_starts_with($error['message'], 'Allowed memory size')) {
                // PHP discarded the buffers and printed its message past them, to the log.
                Worker::$finalOutput = \ini_get('display_errors') ? Worker::shown($error['message'], $error['file'], $error['line']) : '';
            } elseif ($isFatal && Worker::$cancelled) {
                // The limit of the runtime ended it, possibly within the callback of an output buffer.
                Worker::$finalOutput = '';
            }
            if (Worker::$atEnd !== []) {
                Worker::runAtEnd();
            }
            Worker::sendResponse();
        }

        /** Why the worker cannot boot, with the output of the application. */
        private static function notReady(string $printed): string
        {
            $words = \trim(\strip_tags($printed));
            return 'the script ended before it was ready for a request' . ($words === '' ? '' : ': ' . \substr($words, 0, 2000));
        }

        public static function fail(string $reason): void
        {
            if (Worker::$phase === self::ENDED) {
                return;
            }
            Worker::$wire->send(Wire::FAILED, $reason);
            Worker::$phase = self::ENDED;
        }

        private static function bye(string $reason): void
        {
            if (Worker::$phase === self::ENDED) {
                return;
            }
            Worker::$phase = self::ENDED;
            Worker::$wire->send(Wire::BYE, $reason);
        }

        /** Classic: runs the script of this request. */
        public static function script(): string
        {
            $script = $_SERVER['SCRIPT_FILENAME'] ?? '';
            $script = $script === '' ? Worker::$script : $script;
            $folder = \dirname($script);
            if ($folder !== \getcwd()) {
                @\chdir($folder);
            }
            if (Worker::$served > 0 && (Worker::$defines[$script] ??= Classic::defines($script))) {
                \set_error_handler(
                    static fn (int $level, string $text, string $file): bool =>
                        $file === $script && \str_ends_with($text, ' already defined'),
                    \E_WARNING
                );
            }
            return $script;
        }

        /**
         * Classic: ends the request and removes its global variables. False if this process does not continue; then the
         * response is sent when PHP ends, after the application's shutdown functions.
         */
        public static function endClassic(): bool
        {
            if (Worker::$keep === null) {
                Worker::$keep = Classic::canRunAgain($_SERVER['SCRIPT_FILENAME'] ?? Worker::$script);
            }
            if (!Worker::$keep) {
                return false;
            }
            Worker::finish();
            foreach (State::newGlobals() as $name) {
                if ($name !== '__composer_autoload_files') {
                    unset($GLOBALS[$name]);
                }
            }
            return true;
        }
    }

    /** Decides which classic applications can be included repeatedly in one process. */
    final class Classic
    {
        /**
         * Decides after the first request whether this process can handle a second one. A front controller that declares
         * functions cannot be included twice; one that works by `include_once` would do nothing the second time. With the
         * autoloader of Composer, the work is done by classes that the front controller calls.
         */
        public static function canRunAgain(string $script): bool
        {
            $script = \realpath($script) ?: $script;
            foreach (\get_defined_functions()['user'] as $function) {
                if ((new \ReflectionFunction($function))->getFileName() === $script) {
                    return false;
                }
            }
            foreach (\array_reverse(\get_declared_classes()) as $class) {
                $reflection = new \ReflectionClass($class);
                if ($reflection->isInternal()) {
                    break;
                }
                if ($reflection->getFileName() === $script) {
                    return false;
                }
            }
            foreach (['ABSPATH', 'MEDIAWIKI', 'DOKU_INC', 'PHPMYADMIN', 'RCUBE_VERSION', 'DRUPAL_ROOT', '_JEXEC'] as $constant) {
                if (\defined($constant)) {
                    return false;
                }
            }
            $included = \array_diff(\get_included_files(), [__FILE__, $script]);
            return $included === [] || \class_exists(\Composer\Autoload\ClassLoader::class, false);
        }

        /** Whether a front controller defines constants, which causes warnings the second time. */
        public static function defines(string $script): bool
        {
            return \preg_match('/\bdefine\s*\(|^\s*const\s/m', (string) @\file_get_contents($script)) === 1;
        }
    }

    /**
     * Functions of PHP that a resident worker has to replace. Global functions can only be replaced if `disable_functions`
     * of the pool has them; see the end of this file and README.md.
     */
    final class Functions
    {
        public static bool $levelIsReplaced = false;
        public static bool $uploadsAreReplaced = false;

        /** The replacements. */
        private const OURS = [
            'apache_request_headers' => [Request::class, 'headers'],
            'fastcgi_finish_request' => [Worker::class, 'finishEarly'],
            'getallheaders' => [Request::class, 'headers'],
            'is_uploaded_file' => [Request::class, 'isUpload'],
            'move_uploaded_file' => [Request::class, 'moveUpload'],
            'register_shutdown_function' => [Worker::class, 'registerShutdown'],
        ];

        /** Libraries that call them without a leading backslash: PHP resolves these calls in their namespace first. */
        private const LIBRARIES = [
            'Symfony\Component\HttpFoundation' => ['fastcgi_finish_request'],
            'Symfony\Component\HttpFoundation\File' => ['is_uploaded_file', 'move_uploaded_file'],
            'GuzzleHttp\Psr7' => ['getallheaders', 'move_uploaded_file'],
            'Slim\Http' => ['getallheaders', 'is_uploaded_file', 'move_uploaded_file'],
            'Slim\Psr7' => ['getallheaders', 'is_uploaded_file', 'move_uploaded_file'],
            'Laminas\Diactoros' => ['apache_request_headers', 'move_uploaded_file'],
            'Illuminate\Foundation\Bootstrap' => ['register_shutdown_function'],
        ];

        /** Declares the replacements in the namespaces of libraries, which is only possible with generated code. */
        public static function declareForLibraries(): void
        {
            $code = '';
            foreach (self::LIBRARIES as $namespace => $functions) {
                $code .= "namespace $namespace {\n";
                foreach ($functions as $function) {
                    $ours = '\\' . \implode('::', self::OURS[$function]);
                    $code .= "function $function(mixed ...\$arguments): mixed { return $ours(...\$arguments); }\n";
                }
                $code .= "}\n";
            }
            eval($code);
        }
    }
}

namespace Apus {

    use Apus\Runtime\Worker;
    use Closure;
    use Throwable;

    /** An exception that becomes a response: `throw new HttpException(404)`. */
    class HttpException extends \RuntimeException
    {
        /** @param array<string, string> $headers */
        public function __construct(
            public readonly int $status,
            string $message = '',
            public readonly array $headers = [],
            ?Throwable $previous = null,
        ) {
            parent::__construct($message !== '' ? $message : Response::phrase($status), $status, $previous);
        }
    }

    /** A request. All values come from the client and are not escaped. */
    final class Request
    {
        /** @var array<string, string|int|float> the parameters of the route */
        public array $parameters = [];
        /** @var array<string, mixed> values that middlewares pass on */
        public array $attributes = [];
        private ?string $path = null;
        private ?string $body = null;

        /**
         * @param array<string, mixed> $server
         * @param array<mixed> $query
         * @param array<mixed> $form
         * @param array<mixed> $cookies
         * @param array<mixed> $files
         */
        public function __construct(
            private array $server,
            private array $query = [],
            private array $form = [],
            private array $cookies = [],
            private array $files = [],
        ) {
        }

        public static function current(): self
        {
            return new self($_SERVER, $_GET, $_POST, $_COOKIE, $_FILES);
        }

        public function method(): string
        {
            return $this->server['REQUEST_METHOD'] ?? 'GET';
        }

        /** The path of the target, decoded, without the query. */
        public function path(): string
        {
            if ($this->path === null) {
                $target = $this->server['REQUEST_URI'] ?? '/';
                $path = \substr($target, 0, \strcspn($target, '?#'));
                $this->path = \str_contains($path, '%') ? \rawurldecode($path) : $path;
            }
            return $this->path;
        }

        /** The request target. */
        public function target(): string
        {
            return $this->server['REQUEST_URI'] ?? '/';
        }

        /** A parameter of the query. */
        public function query(string $name, mixed $default = null): mixed
        {
            return $this->query[$name] ?? $default;
        }

        /** A field of a form, or of a JSON object. */
        public function input(string $name, mixed $default = null): mixed
        {
            if (isset($this->form[$name])) {
                return $this->form[$name];
            }
            $json = $this->isJson() ? $this->json() : null;
            return \is_array($json) ? $json[$name] ?? $default : $default;
        }

        /** @return array<mixed> all of the form */
        public function form(): array
        {
            return $this->form;
        }

        public function isJson(): bool
        {
            return (bool) \preg_match('#^application/(?:[\w.+-]+\+)?json\b#i', (string) $this->header('Content-Type'));
        }

        /** The body as JSON. 400 if it is invalid. */
        public function json(): mixed
        {
            try {
                return \json_decode($this->body(), true, 128, \JSON_THROW_ON_ERROR);
            } catch (\JsonException $error) {
                throw new HttpException(400, 'The content is no JSON.', [], $error);
            }
        }

        /** The whole body. For large bodies, open php://input. */
        public function body(): string
        {
            return $this->body ??= (string) \file_get_contents('php://input');
        }

        /** A header field, by its name. */
        public function header(string $name, ?string $default = null): ?string
        {
            $name = \strtoupper(\strtr($name, '-', '_'));
            $name = $name === 'CONTENT_TYPE' || $name === 'CONTENT_LENGTH' ? $name : "HTTP_$name";
            return $this->server[$name] ?? $default;
        }

        public function cookie(string $name, ?string $default = null): ?string
        {
            $value = $this->cookies[$name] ?? null;
            return \is_string($value) ? $value : $default;
        }

        /** A complete upload; null if there is none of this name. */
        public function file(string $name): ?Upload
        {
            $file = $this->files[$name] ?? null;
            if (!\is_array($file) || !\is_string($file['tmp_name'] ?? null) || $file['error'] === \UPLOAD_ERR_NO_FILE) {
                return null;
            }
            return new Upload($file['name'], $file['type'], $file['tmp_name'], (int) $file['size'], (int) $file['error']);
        }

        /** The address of the client. */
        public function ip(): string
        {
            return $this->server['REMOTE_ADDR'] ?? '';
        }

        public function isSecure(): bool
        {
            return \in_array($this->server['HTTPS'] ?? '', ['on', '1'], true);
        }

        /** A variable of the server, such as SERVER_NAME. */
        public function server(string $name): ?string
        {
            $value = $this->server[$name] ?? null;
            return $value === null ? null : (string) $value;
        }

        public function attribute(string $name, mixed $default = null): mixed
        {
            return $this->attributes[$name] ?? $default;
        }
    }

    /** An uploaded file. */
    final class Upload
    {
        public function __construct(
            /** The name from the client: not to be used as a path. */
            public readonly string $name,
            /** The type from the client. */
            public readonly string $type,
            public readonly string $path,
            public readonly int $size,
            /** One of UPLOAD_ERR_*. */
            public readonly int $error,
        ) {
        }

        /** Moves the file; otherwise it is removed after the request. */
        public function moveTo(string $target): void
        {
            $moved = $this->error === \UPLOAD_ERR_OK
                && (Worker::$resident ? Runtime\Request::moveUpload($this->path, $target) : \move_uploaded_file($this->path, $target));
            if (!$moved) {
                throw new HttpException(400, 'The file did not arrive whole.');
            }
        }
    }

    /** A response. */
    final class Response
    {
        /** @var list<string> the header field lines */
        private array $lines = [];

        private function __construct(public int $status, private string|Closure $content, ?string $type)
        {
            if ($type !== null) {
                $this->lines[] = "Content-Type: $type";
            }
        }

        public static function html(string $content, int $status = 200): self
        {
            return new self($status, $content, 'text/html; charset=utf-8');
        }

        public static function text(string $content, int $status = 200): self
        {
            return new self($status, $content, 'text/plain; charset=utf-8');
        }

        public static function json(mixed $value, int $status = 200): self
        {
            $flags = \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES | \JSON_UNESCAPED_UNICODE | \JSON_PRESERVE_ZERO_FRACTION;
            return new self($status, \json_encode($value, $flags), 'application/json');
        }

        public static function redirect(string $location, int $status = 302): self
        {
            return (new self($status, '', null))->header('Location', $location);
        }

        public static function empty(int $status = 204): self
        {
            return new self($status, '', null);
        }

        /** A file, which the server sends (X-Sendfile). The `accel` setting of the server must allow its path. */
        public static function file(string $path, ?string $type = null, ?string $download = null): self
        {
            $response = (new self(200, '', $type))->header('X-Sendfile', $path);
            if ($download !== null) {
                $plain = \preg_replace('/[^\x20-\x7e]|["\\\\]/', '_', $download);
                $response->header('Content-Disposition', "attachment; filename=\"$plain\"; filename*=UTF-8''" . \rawurlencode($download));
            }
            return $response;
        }

        /** A streamed body: $write prints, and each `yield`ed or returned string is sent at once. */
        public static function stream(Closure $write, string $type = 'application/octet-stream'): self
        {
            return new self(200, $write, $type);
        }

        /** Server-sent events: the server keeps the response open and sends the events of the channels. */
        public static function events(string ...$channels): self
        {
            foreach ($channels as $channel) {
                Channel::check($channel);
            }
            return (new self(200, '', 'text/event-stream'))
                ->header('Cache-Control', 'no-cache')
                ->header('X-Apus-Events', \implode(', ', $channels));
        }

        public function status(int $status): self
        {
            $this->status = $status;
            return $this;
        }

        public function header(string $name, string $value): self
        {
            if (!\preg_match('/^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$/D', $name) || \strcspn($value, "\r\n\0") !== \strlen($value)) {
                throw new \InvalidArgumentException("not a field line: $name");
            }
            $this->lines[] = "$name: $value";
            return $this;
        }

        public function cookie(
            string $name,
            string $value,
            int $maxAge = 0,
            string $path = '/',
            bool $secure = false,
            bool $httpOnly = true,
            string $sameSite = 'Lax',
        ): self {
            if (\preg_match('/^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$/D', $name) !== 1 || \str_contains($path . $sameSite, ';')) {
                throw new \InvalidArgumentException("not a cookie: $name");
            }
            $line = $name . '=' . \rawurlencode($value) . "; Path=$path; SameSite=$sameSite";
            $line .= ($maxAge !== 0 ? "; Max-Age=$maxAge" : '') . ($secure ? '; Secure' : '') . ($httpOnly ? '; HttpOnly' : '');
            return $this->header('Set-Cookie', $line);
        }

        /** @return list<string> */
        public function lines(): array
        {
            return $this->lines;
        }

        public function content(): string
        {
            return \is_string($this->content) ? $this->content : '';
        }

        /** Sends the response through PHP, in a resident worker as under plain FastCGI. */
        public function send(): void
        {
            \http_response_code($this->status);
            foreach ($this->lines as $line) {
                \header($line, false);
            }
            if (\is_string($this->content)) {
                echo $this->content;
                return;
            }
            $pieces = ($this->content)();
            if (\is_iterable($pieces)) {
                foreach ($pieces as $piece) {
                    echo $piece;
                    Worker::$resident ? Worker::flush() : \flush();
                }
            } elseif (\is_string($pieces)) {
                echo $pieces;
            }
        }

        /** Converts the result of a handler: a response, a view (also of Illuminate) or text (HTML), data (JSON), or null (204). */
        public static function of(mixed $value): self
        {
            return match (true) {
                $value instanceof self => $value,
                \is_string($value) => self::html($value),
                $value instanceof View, $value instanceof \Illuminate\Contracts\Support\Renderable => self::html($value->render()),
                $value === null => self::empty(),
                default => self::json($value),
            };
        }

        public static function phrase(int $status): string
        {
            return [
                400 => 'Bad Request', 401 => 'Unauthorized', 403 => 'Forbidden', 404 => 'Not Found', 405 => 'Method Not Allowed',
                409 => 'Conflict', 410 => 'Gone', 413 => 'Content Too Large', 415 => 'Unsupported Media Type',
                422 => 'Unprocessable Content', 429 => 'Too Many Requests', 500 => 'Internal Server Error',
                501 => 'Not Implemented', 503 => 'Service Unavailable',
            ][$status] ?? "Status $status";
        }
    }

    /** A template in plain PHP. In it, `$e()` escapes, `$this->layout()` sets a layout, and a layout prints `$this->content()`. */
    final class View
    {
        /** The folder of templates. */
        public static string $folder = '.';
        /** @var array<string, mixed> the values for all templates */
        public static array $shared = [];
        private static ?Closure $escape = null;
        private ?View $layout = null;
        private string $inner = '';

        /** @param array<string, mixed> $values */
        public function __construct(private string $name, private array $values = [])
        {
            if (\preg_match('#^[\w-]+(?:/[\w-]+)*$#D', $name) !== 1) {
                throw new \InvalidArgumentException("not a template: $name");
            }
        }

        public function render(): string
        {
            $values = $this->values + self::$shared;
            $values['e'] = self::$escape ??= self::escape(...);
            $level = \count(\ob_list_handlers());
            \ob_start();
            try {
                $this->show(self::$folder . "/$this->name.php", $values);
                $content = (string) \ob_get_clean();
            } catch (Throwable $error) {
                while (\count(\ob_list_handlers()) > $level) {
                    \ob_end_clean();
                }
                throw $error;
            }
            if ($this->layout === null) {
                return $content;
            }
            $this->layout->inner = $content;
            return $this->layout->render();
        }

        /** @param array<string, mixed> $apusValues the variables of the template */
        private function show(string $apusFile, array $apusValues): void
        {
            \extract($apusValues, \EXTR_SKIP);
            include $apusFile;
        }

        /**
         * In a template: sets its layout.
         *
         * @param array<string, mixed> $values
         */
        public function layout(string $name, array $values = []): void
        {
            $this->layout = new self($name, $values + $this->values);
        }

        /** In a layout: the output of the template. */
        public function content(): string
        {
            return $this->inner;
        }

        /**
         * In a template: the output of another template.
         *
         * @param array<string, mixed> $values
         */
        public function part(string $name, array $values = []): string
        {
            return (new self($name, $values + $this->values))->render();
        }

        /** Escapes text for HTML, also in attributes. */
        public static function escape(string|int|float|null $text): string
        {
            return \htmlspecialchars((string) $text, \ENT_QUOTES | \ENT_SUBSTITUTE | \ENT_HTML5, 'UTF-8');
        }
    }

    /** Routes under a common prefix, with common middlewares and a common namespace of controllers. */
    class Routes
    {
        /** @param list<string|callable> $middlewares */
        public function __construct(
            protected App $app,
            protected string $prefix = '',
            protected array $middlewares = [],
            protected string $namespace = '',
        ) {
        }

        /** @param list<string|callable> $middlewares */
        public function get(string $path, callable|array|string $handler, array $middlewares = []): static
        {
            return $this->on(['GET'], $path, $handler, $middlewares);
        }

        /** @param list<string|callable> $middlewares */
        public function post(string $path, callable|array|string $handler, array $middlewares = []): static
        {
            return $this->on(['POST'], $path, $handler, $middlewares);
        }

        /** @param list<string|callable> $middlewares */
        public function put(string $path, callable|array|string $handler, array $middlewares = []): static
        {
            return $this->on(['PUT'], $path, $handler, $middlewares);
        }

        /** @param list<string|callable> $middlewares */
        public function patch(string $path, callable|array|string $handler, array $middlewares = []): static
        {
            return $this->on(['PATCH'], $path, $handler, $middlewares);
        }

        /** @param list<string|callable> $middlewares */
        public function delete(string $path, callable|array|string $handler, array $middlewares = []): static
        {
            return $this->on(['DELETE'], $path, $handler, $middlewares);
        }

        /**
         * Adds a route for some methods. `{name}` in the path matches a segment; `{name:int}`, `:float`, `:slug`, `:uuid` match
         * only these types, `{name:path}` matches the rest. A handler is a function, `[Class::class, 'method']`, or
         * `'Controller@method'` with a class of the group's namespace. It gets the Request and services by their types, and
         * parameters of the path by name.
         *
         * @param list<string> $methods
         * @param list<string|callable> $middlewares of this route, inside of the middlewares of its group: names, classes or
         * functions
         */
        public function on(array $methods, string $path, callable|array|string $handler, array $middlewares = []): static
        {
            if (\is_string($handler) && \str_contains($handler, '@')) {
                [$class, $method] = \explode('@', $handler, 2);
                $handler = [self::qualified($this->namespace, $class), $method];
            }
            $this->app->add(new Route($methods, $this->prefix . $path, $handler, [...$this->middlewares, ...$middlewares]));
            return $this;
        }

        /**
         * Adds routes with a common prefix.
         *
         * @param list<string|callable> $middlewares names, classes or functions
         * @param callable(self): mixed $routes adds them
         * @param string $namespace of the classes in `'Controller@method'`, within the namespace of the outer group;
         * absolute if it begins with a backslash
         */
        public function group(string $prefix, array $middlewares, callable $routes, string $namespace = ''): static
        {
            $namespace = $namespace === '' ? $this->namespace : self::qualified($this->namespace, $namespace);
            $routes(new self($this->app, $this->prefix . $prefix, [...$this->middlewares, ...$middlewares], $namespace));
            return $this;
        }

        private static function qualified(string $namespace, string $name): string
        {
            $name = \rtrim($name, '\\');
            return $namespace === '' || \str_starts_with($name, '\\') ? \ltrim($name, '\\') : "$namespace\\$name";
        }

        /**
         * Adds WebSockets on a path. `open(Request, Socket, ...)` refuses by returning a Response or throwing, `message(Socket, string,
         * ...)` gets each message, `close(Socket, int $code, ...)` is called at the end; all get parameters of the path by name.
         */
        public function socket(string $path, ?callable $message = null, ?callable $open = null, ?callable $close = null): static
        {
            $handlers = ['ws_open' => $open, 'ws_message' => $message, 'ws_close' => $close];
            $this->app->addSocket(new Route(['GET'], $this->prefix . $path, static fn () => null, $this->middlewares), $handlers);
            return $this;
        }
    }

    /** A path with a handler. */
    final class Route
    {
        private const TYPES = [
            'int' => '-?[0-9]{1,18}',
            'float' => '-?[0-9]+(?:\.[0-9]+)?',
            'slug' => '[A-Za-z0-9_-]+',
            'uuid' => '[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}',
            'path' => '.+',
            '' => '[^/]+',
        ];

        public readonly string $pattern;
        public readonly bool $isStatic;
        /** @var array<string, string> type by name */
        public array $types = [];
        /** The handler with its middlewares. */
        public ?Closure $run = null;

        /**
         * @param list<string> $methods
         * @param list<string|callable> $middlewares
         */
        public function __construct(
            public readonly array $methods,
            public readonly string $path,
            public readonly mixed $handler,
            public readonly array $middlewares,
        ) {
            $pattern = '';
            foreach (\preg_split('/(\{\w+(?::\w+)?\})/', $path, -1, \PREG_SPLIT_DELIM_CAPTURE) ?: [] as $i => $part) {
                if ($i % 2 === 0) {
                    $pattern .= \preg_quote($part, '~');
                    continue;
                }
                [$name, $type] = \explode(':', \substr($part, 1, -1)) + [1 => ''];
                if (!isset(self::TYPES[$type])) {
                    throw new \InvalidArgumentException("unknown type in the route $path: $type");
                }
                $this->types[$name] = $type;
                $pattern .= '(' . self::TYPES[$type] . ')';
            }
            $this->pattern = $pattern;
            $this->isStatic = $this->types === [];
        }

        /**
         * @param list<string> $values
         * @return array<string, string|int|float>
         */
        public function parameters(array $values): array
        {
            $parameters = [];
            $i = 0;
            foreach ($this->types as $name => $type) {
                $value = $values[$i++];
                $parameters[$name] = match ($type) {
                    'int' => (int) $value,
                    'float' => (float) $value,
                    default => $value,
                };
            }
            return $parameters;
        }
    }

    /** A set of routes, which matches a path with one regular expression. */
    final class Router
    {
        /** @var array<string, list<Route>> */
        private array $static = [];
        /** @var list<Route> */
        private array $dynamic = [];
        /** @var array<int, Route>|null the routes by the number of their mark */
        private ?array $marked = null;
        private string $expression = '';

        /** @return list<Route> */
        public function routes(): array
        {
            return [...\array_merge(...\array_values($this->static)), ...$this->dynamic];
        }

        public function add(Route $route): void
        {
            if ($route->isStatic) {
                $this->static[$route->path][] = $route;
            } else {
                $this->dynamic[] = $route;
                $this->marked = null;
            }
        }

        /**
         * @return array{Route, array<string, string|int|float>}|list<string> the route with its parameters, or the methods that
         *     the path supports (none if there is no such path)
         */
        public function find(string $method, string $path): array
        {
            $allowed = [];
            $wanted = $method === 'HEAD' ? 'GET' : $method;
            foreach ($this->static[$path] ?? [] as $route) {
                if (\in_array($wanted, $route->methods, true)) {
                    return [$route, []];
                }
                $allowed = [...$allowed, ...$route->methods];
            }
            if ($this->dynamic === []) {
                return $allowed;
            }
            if ($this->marked === null) {
                $this->compile();
            }
            if (!\preg_match($this->expression, $path, $match)) {
                return $allowed;
            }
            // The first route that matches, if it has the method; otherwise later ones one by one.
            $from = (int) $match['MARK'];
            $route = $this->dynamic[$from];
            if (\in_array($wanted, $route->methods, true)) {
                unset($match['MARK']);
                return [$route, $route->parameters(\array_slice($match, 1))];
            }
            for ($i = $from, $count = \count($this->dynamic); $i < $count; $i++) {
                $route = $this->dynamic[$i];
                if (\preg_match('~^' . $route->pattern . '$~Ds', $path, $match)) {
                    if (\in_array($wanted, $route->methods, true)) {
                        return [$route, $route->parameters(\array_slice($match, 1))];
                    }
                    $allowed = [...$allowed, ...$route->methods];
                }
            }
            return $allowed;
        }

        private function compile(): void
        {
            $parts = [];
            foreach ($this->dynamic as $i => $route) {
                $parts[] = $route->pattern . '(*MARK:' . $i . ')';
            }
            $this->expression = '~^(?|' . \implode('|', $parts) . ')$~Ds';
            $this->marked = $this->dynamic;
        }
    }

    /**
     * An application: routes, middlewares, tasks, timers, sockets. The same code runs resident and, by `run()`, as a front
     * controller under plain PHP-FPM.
     */
    final class App extends Routes
    {
        /** The application that runs. */
        public static ?self $current = null;

        private Router $router;
        private Router $sockets;
        /** The services, for code that gets none as arguments: tasks and timers. */
        public readonly Container $container;
        /** @var array<string, callable|string> */
        private array $named = [];
        /** @var list<string|callable> */
        private array $always = [];
        /** @var array<class-string, callable> */
        private array $handlers = [];
        /** @var array<string, callable> */
        private array $tasks = [];
        /** @var array<string, array{int, callable}> */
        private array $timers = [];
        /** @var \SplObjectStorage<Route, array<string, ?callable>> */
        private \SplObjectStorage $socketHandlers;
        private ?Closure $entry = null;
        private bool $development;

        public function __construct(?bool $development = null)
        {
            parent::__construct($this);
            $this->router = new Router();
            $this->sockets = new Router();
            $this->container = new Container();
            $this->socketHandlers = new \SplObjectStorage();
            $this->development = $development ?? (Worker::$resident ? Worker::$development : \getenv('APUS_ENV') === 'development');
        }

        /**
         * Sets the name of a middleware: `fn (Request $request, callable $next): mixed`, or a class with such a method `handle`,
         * of which each request gets a new object.
         *
         * @param callable|class-string $middleware
         */
        public function middleware(string $name, callable|string $middleware): self
        {
            $this->named[$name] = $middleware;
            return $this;
        }

        /**
         * Adds a service that lives as long as the worker, so it must not keep anything of a request. It is made when it is
         * first needed.
         *
         * @param class-string $class
         * @param callable(Container): object|null $make by default its constructor, with services for its parameters
         */
        public function service(string $class, ?callable $make = null): self
        {
            $this->container->set($class, $make, true);
            return $this;
        }

        /**
         * Adds a service of which each request that needs it gets a new object.
         *
         * @param class-string $class
         * @param callable(Container): object|null $make by default its constructor, with services for its parameters
         */
        public function scoped(string $class, ?callable $make = null): self
        {
            $this->container->set($class, $make, false);
            return $this;
        }

        /** Saves the state of a library when the application is ready, and restores it after each request. */
        public function library(LibraryState $state): self
        {
            Runtime\Libraries::add($state);
            return $this;
        }

        /** Adds middlewares for all requests, also those without a route, in this order. */
        public function use(string|callable ...$middlewares): self
        {
            $this->always = [...$this->always, ...\array_values($middlewares)];
            $this->entry = null;
            return $this;
        }

        /**
         * Sets the response to exceptions of a class: `fn (Throwable $error, Request $request): mixed`.
         *
         * @param class-string $class
         */
        public function error(string $class, callable $handler): self
        {
            $this->handlers[$class] = $handler;
            return $this;
        }

        /** The folder of templates. */
        public function views(string $folder): self
        {
            View::$folder = $folder;
            return $this;
        }

        /** Sets the function of a task: `fn (mixed $payload): void`. Task::queue() queues the task. */
        public function task(string $name, callable $do): self
        {
            Channel::check($name);
            $this->tasks[$name] = $do;
            return $this;
        }

        /** Adds a timer, which runs in one of the workers. Resident only. */
        public function every(float $seconds, string $name, callable $do): self
        {
            Channel::check($name);
            $this->timers[$name] = [(int) \max(1, \round($seconds * 1000)), $do];
            return $this;
        }

        /** @internal by Routes */
        public function add(Route $route): void
        {
            $this->router->add($route);
        }

        /**
         * @internal by Routes
         * @param array<string, ?callable> $handlers
         */
        public function addSocket(Route $route, array $handlers): void
        {
            $this->sockets->add($route);
            $this->socketHandlers[$route] = $handlers;
        }

        /** The last call of the script: handles requests in a resident worker, otherwise the current request. */
        public function run(): void
        {
            self::$current = $this;
            if (Worker::$resident) {
                return;
            }
            Runtime\Libraries::save();
            $this->handle(Request::current())->send();
            $this->endRequest();
            Db::endRequest();
            Runtime\Libraries::restore();
            Task::runAfter();
        }

        /** @internal Removes the services of the request. */
        public function endRequest(): void
        {
            $this->container->endRequest();
        }

        /** The payload of READY. Throws if a handler, a middleware or a service of a route does not exist. */
        public function declaration(): string
        {
            $this->wrap($this->always, static fn () => null);
            foreach ([...$this->router->routes(), ...$this->sockets->routes()] as $route) {
                try {
                    $route->run = $this->wrap($route->middlewares, $this->caller($route));
                } catch (\LogicException | \ReflectionException $error) {
                    throw new \LogicException("the route $route->path: " . $error->getMessage(), 0, $error);
                }
            }
            $lines = $this->socketHandlers->count() > 0 ? "sockets: 1\n" : '';
            foreach ($this->timers as $name => [$milliseconds]) {
                $lines .= "timer: $name $milliseconds\n";
            }
            return $lines;
        }

        /** The response to a request; it never throws. */
        public function handle(Request $request): Response
        {
            $this->container->begin($request);
            try {
                $this->entry ??= $this->wrap($this->always, $this->dispatch(...));
                return Response::of(($this->entry)($request));
            } catch (Throwable $error) {
                return $this->failed($error, $request);
            }
        }

        private function dispatch(Request $request): mixed
        {
            $found = $this->router->find($request->method(), $request->path());
            if (!($found[0] ?? null) instanceof Route) {
                if ($found === []) {
                    throw new HttpException(404);
                }
                $allowed = \implode(', ', \array_unique(\in_array('GET', $found, true) ? [...$found, 'HEAD'] : $found));
                throw new HttpException(405, '', ['Allow' => $allowed]);
            }
            [$route, $request->parameters] = $found;
            $route->run ??= $this->wrap($route->middlewares, $this->caller($route));
            return ($route->run)($request);
        }

        /**
         * Wraps a handler in middlewares, the outermost first.
         *
         * @param list<string|callable> $middlewares
         */
        private function wrap(array $middlewares, Closure $handler): Closure
        {
            foreach (\array_reverse($middlewares) as $middleware) {
                $middleware = $this->callableMiddleware($middleware);
                $next = static fn (Request $request): Response => Response::of($handler($request));
                $handler = static fn (Request $request): mixed => $middleware($request, $next);
            }
            return $handler;
        }

        private function callableMiddleware(string|callable $middleware): Closure
        {
            $found = \is_string($middleware) ? $this->named[$middleware] ?? $middleware : $middleware;
            if (\is_string($found) && \class_exists($found)) {
                if (!\method_exists($found, 'handle')) {
                    throw new \LogicException("the middleware $found has no method handle");
                }
                $this->container->check($found);
                $container = $this->container;
                return static fn (Request $request, callable $next): mixed => $container->get($found)->handle($request, $next);
            }
            if (!\is_callable($found)) {
                throw new \LogicException('there is no middleware ' . (\is_string($found) ? $found : \get_debug_type($found)));
            }
            return $found(...);
        }

        /** Calls the handler of a route with services by their types, and with parameters of the path by name. */
        private function caller(Route $route): Closure
        {
            $handler = $route->handler;
            $container = $this->container;
            if (!\is_array($handler) || !\is_string($handler[0] ?? null) || \is_callable($handler)) {
                if (!\is_callable($handler)) {
                    throw new \LogicException('there is no handler ' . (\is_string($handler) ? $handler : \get_debug_type($handler)));
                }
                $handler = $handler(...);
                $arguments = $container->plan(new \ReflectionFunction($handler), $route->types);
                return static fn (Request $request): mixed => $handler(...$container->arguments($arguments, $request->parameters));
            }
            [$class, $method] = $handler;
            if (!\class_exists($class)) {
                throw new \LogicException("there is no class $class");
            }
            $arguments = $container->plan(new \ReflectionMethod($class, $method), $route->types);
            $container->check($class);
            // A new object for each request, so that it keeps no state for the next.
            return static function (Request $request) use ($container, $class, $method, $arguments): mixed {
                $object = $container->get($class);
                if (!$object instanceof Controller) {
                    return $object->$method(...$container->arguments($arguments, $request->parameters));
                }
                $object->request = $request;
                return $object->$method(...$container->arguments($arguments, $request->parameters)) ?? $object->message();
            };
        }

        private function failed(Throwable $error, Request $request): Response
        {
            $cause = Blade::cause($error);
            $error = $cause instanceof HttpException ? $cause : $error;
            foreach ($this->handlers as $class => $handler) {
                if ($cause instanceof $class || $error instanceof $class) {
                    try {
                        return Response::of($handler($cause instanceof $class ? $cause : $error, $request));
                    } catch (Throwable $second) {
                        $error = $cause = $second;
                    }
                }
            }
            $status = $error instanceof HttpException ? $error->status : 500;
            if ($status >= 500) {
                Log::error((string) $error);
            }
            $response = $this->development && !$error instanceof HttpException ? self::explain($error, $request) : null;
            $message = $error instanceof HttpException ? $error->getMessage() : Response::phrase(500);
            if ($response === null && \str_contains((string) $request->header('Accept'), 'application/json')) {
                $response = Response::json(['status' => $status, 'error' => $message], $status);
            }
            $text = View::escape($message);
            $page = "<!doctype html>\n<html><head><title>$text</title></head><body><h1>$text</h1></body></html>\n";
            $response ??= Response::html($page, $status);
            foreach ($error instanceof HttpException ? $error->headers : [] as $name => $value) {
                $response->header($name, $value);
            }
            return $response;
        }

        /** The error page for developers. */
        private static function explain(Throwable $error, Request $request): Response
        {
            $e = View::escape(...);
            $html = '';
            for ($cause = $error; $cause !== null; $cause = $cause->getPrevious()) {
                $html .= '<h1>' . $e($cause::class) . '</h1><p>' . $e($cause->getMessage()) . '</p>'
                    . '<p><b>' . $e($cause->getFile()) . ':' . $cause->getLine() . '</b></p>'
                    . '<pre>' . $e($cause->getTraceAsString()) . '</pre>';
            }
            $requestLine = $e($request->method() . ' ' . $request->target());
            $style = 'body{font:16px/1.5 sans-serif;margin:2em}pre{background:#eee;padding:1em;overflow:auto}';
            $head = "<head><title>Error</title><style>$style</style></head>";
            return Response::html("<!doctype html>\n<html>$head<body><p>$requestLine</p>$html</body></html>\n", 500);
        }

        /** @internal The response to an event of the server. */
        public function event(array $event, string $message): Response
        {
            try {
                switch ($event['kind'] ?? '') {
                    case 'task':
                        $this->runTask($event['name'] ?? '', $message);
                        break;
                    case 'timer':
                        $name = $event['name'] ?? '';
                        [, $do] = $this->timers[$name] ?? throw new \LogicException("there is no timer $name");
                        $do();
                        break;
                    case 'ws_open':
                    case 'ws_message':
                    case 'ws_close':
                        return $this->socketEvent($event, $message);
                    default:
                        throw new \LogicException('unknown event');
                }
                return Response::empty(200);
            } catch (Throwable $error) {
                return $this->failed($error, new Request($event));
            }
        }

        /** @internal */
        public function runTask(string $name, string $payload): void
        {
            $task = $this->tasks[$name] ?? throw new \LogicException("there is no task $name");
            $task(\json_decode($payload, true, 512, \JSON_THROW_ON_ERROR));
        }

        /** @param array<string, mixed> $event */
        private function socketEvent(array $event, string $message): Response
        {
            $event['REQUEST_URI'] ??= $event['path'] ?? '/';
            $request = $event['kind'] === 'ws_open' ? Request::current() : new Request($event);
            $found = $this->sockets->find('GET', $request->path());
            if (!($found[0] ?? null) instanceof Route) {
                throw new HttpException(404);
            }
            [$route, $request->parameters] = $found;
            $handler = $this->socketHandlers[$route][$event['kind']];
            $socket = new Socket((string) ($event['socket'] ?? ''), (string) ($event['data'] ?? ''));
            $open = $event['kind'] === 'ws_open';
            if ($open) {
                $this->container->begin($request);
            }
            $taken = Response::empty($open ? 101 : 200);
            $call = static function (Request $request) use ($handler, $socket, $event, $message, $taken): Response {
                if ($handler === null) {
                    return $taken;
                }
                $first = match ($event['kind']) {
                    'ws_open' => [$request, $socket],
                    'ws_message' => [$socket, $message],
                    default => [$socket, (int) ($event['code'] ?? 1005)],
                };
                $result = $handler(...$first, ...$request->parameters);
                return $result instanceof Response ? $result : $taken;
            };
            // Middlewares apply to the handshake as to any request.
            return Response::of($open ? $this->wrap([...$this->always, ...$route->middlewares], $call(...))($request) : $call($request));
        }
    }

    /** Services by their classes: for handlers, controllers, middlewares, and constructors of other services. */
    final class Container
    {
        private const SERVICE = 0;
        private const PARAMETER = 1;
        private const VALUE = 2;

        /** @var array<class-string, array{?callable, bool}> how to make a service, and whether it lives as long as the worker */
        private array $makers = [];
        /** @var array<class-string, object> the services that live as long as the worker */
        private array $kept = [];
        /** @var array<class-string, object> the services of the request */
        private array $scoped = [];
        /** @var array<class-string, list<array{int, mixed}>> the arguments of constructors */
        private array $plans = [];
        /** @var array<class-string, bool> the services that are being made, the outermost first */
        private array $making = [];

        /** @internal by App */
        public function set(string $class, ?callable $make, bool $keep): void
        {
            $this->makers[$class] = [$make, $keep];
            unset($this->kept[$class], $this->scoped[$class]);
        }

        /** @internal by App */
        public function begin(Request $request): void
        {
            $this->scoped = [Request::class => $request];
        }

        /** @internal by App */
        public function endRequest(): void
        {
            $this->scoped = [];
            $this->making = [];
        }

        /**
         * The service of a class. One that no one has added is made by its constructor for the request.
         *
         * @template T of object
         * @param class-string<T> $class
         * @return T
         */
        public function get(string $class): object
        {
            if (isset($this->kept[$class])) {
                return $this->kept[$class];
            }
            $outer = \array_search(true, $this->making, true);
            [$make, $keep] = $this->makers[$class] ?? [null, null];
            if ($outer !== false && ($keep === false || $class === Request::class)) {
                throw new \LogicException("the service $outer lives as long as the worker and cannot get $class, which belongs to a request");
            }
            // What a service of the worker gets from no one else belongs to that service.
            if ($outer === false && isset($this->scoped[$class])) {
                return $this->scoped[$class];
            }
            $this->refuseCircle($class);
            $this->making[$class] = $keep === true;
            try {
                $service = $make !== null ? $make($this) : $this->construct($class);
            } finally {
                unset($this->making[$class]);
            }
            if (!$service instanceof $class) {
                throw new \LogicException("the service $class is made as " . \get_debug_type($service));
            }
            if ($keep === true) {
                return $this->kept[$class] = $service;
            }
            return $outer === false ? $this->scoped[$class] = $service : $service;
        }

        private function construct(string $class): object
        {
            $plan = $this->plans[$class] ??= $this->planOf($class);
            return $plan === [] ? new $class() : new $class(...$this->arguments($plan, []));
        }

        /** @return list<array{int, mixed}> */
        private function planOf(string $class): array
        {
            if ($class === Request::class) {
                throw new \LogicException('there is no request: this is a task or a timer');
            }
            $reflection = \class_exists($class) || \interface_exists($class) ? new \ReflectionClass($class) : null;
            if ($reflection === null || !$reflection->isInstantiable()) {
                throw new \LogicException("there is no service $class: add it with service() or scoped()");
            }
            $constructor = $reflection->getConstructor();
            return $constructor === null ? [] : $this->plan($constructor, []);
        }

        /** @internal by App: throws if it is known, without making it, that a service cannot be made. */
        public function check(string $class): void
        {
            if ($class === Request::class || isset($this->plans[$class]) || ($this->makers[$class][0] ?? null) !== null) {
                return;
            }
            $this->refuseCircle($class);
            $this->making[$class] = false;
            try {
                $this->plans[$class] = $this->planOf($class);
            } finally {
                unset($this->making[$class]);
            }
        }

        private function refuseCircle(string $class): void
        {
            if (isset($this->making[$class])) {
                $circle = \implode(' needs ', \array_keys($this->making));
                throw new \LogicException("services need one another: $circle needs $class");
            }
        }

        /**
         * @internal by App: where the arguments of a function come from.
         *
         * @param array<string, string> $types the parameters of the path, with their types
         * @return list<array{int, mixed}>
         */
        public function plan(\ReflectionFunctionAbstract $function, array $types): array
        {
            $plan = [];
            foreach ($function->getParameters() as $parameter) {
                if ($parameter->isVariadic()) {
                    break;
                }
                $name = $parameter->getName();
                $type = $parameter->getType();
                $class = $type instanceof \ReflectionNamedType && !$type->isBuiltin() ? $type->getName() : null;
                $hasDefault = $parameter->isDefaultValueAvailable();
                if ($class !== null && !isset($types[$name]) && !($hasDefault && !$this->knows($class))) {
                    $this->check($class);
                    $plan[] = [self::SERVICE, $class];
                } elseif ($class === null && isset($types[$name])) {
                    $plan[] = [self::PARAMETER, $name];
                } elseif ($hasDefault && !isset($types[$name])) {
                    $plan[] = [self::VALUE, $parameter->getDefaultValue()];
                } elseif (isset($types[$name])) {
                    throw new \LogicException("the parameter {$name} of the path is no $class");
                } else {
                    $of = $function instanceof \ReflectionMethod ? "$function->class::$function->name()" : 'the handler';
                    throw new \LogicException("$of needs \$$name, which is no parameter of the path and no service");
                }
            }
            return $plan;
        }

        private function knows(string $class): bool
        {
            return isset($this->makers[$class]) || $class === Request::class;
        }

        /**
         * @internal by App
         *
         * @param list<array{int, mixed}> $plan
         * @param array<string, string|int|float> $parameters
         * @return list<mixed>
         */
        public function arguments(array $plan, array $parameters): array
        {
            $arguments = [];
            foreach ($plan as [$kind, $value]) {
                $arguments[] = match ($kind) {
                    self::SERVICE => $this->get($value),
                    self::PARAMETER => $parameters[$value],
                    default => $value,
                };
            }
            return $arguments;
        }
    }

    /** The base of controllers, if an application wants one. Each request gets a new object. */
    abstract class Controller
    {
        /** The request; it is set before the method is called, and not yet in the constructor. */
        public Request $request;
        private ?Response $message = null;

        /** A page from HTML. It is the response also if the method returns nothing. */
        protected function showMessage(string $html, int $status = 200): Response
        {
            return $this->message = Response::html($html, $status);
        }

        /**
         * A page from a Blade view, or from a template in plain PHP if the application does not use Blade.
         *
         * @param array<string, mixed> $values
         */
        protected function show(string $view, array $values = [], int $status = 200): Response
        {
            $html = Blade::isUsed() ? Blade::view($view, $values) : (new View($view, $values))->render();
            return $this->showMessage($html, $status);
        }

        /** @internal */
        final public function message(): ?Response
        {
            return $this->message;
        }
    }

    /** State of a library that lasts from one request to the next; `App::library()` adds it. */
    interface LibraryState
    {
        /** Saves the state. Called once, when the application is ready. */
        public function save(): void;

        /** Restores the saved state. Called after each request and event; if it throws, the worker is replaced. */
        public function restore(): void;
    }

    /** Eloquent in a resident worker: its connections stay open, and nothing of a request is left in them. */
    final class Eloquent implements LibraryState
    {
        private static ?self $instance = null;

        /** @var array<string, array{bool, ?\Illuminate\Contracts\Events\Dispatcher}> by the name of a connection: whether it logs, its events */
        private array $connections = [];
        private string $default = 'default';
        private bool $unguarded = false;
        private bool $preventsLazyLoading = false;

        private function __construct(private \Illuminate\Database\Capsule\Manager $manager)
        {
        }

        /**
         * Adds a connection for models and for `Illuminate\Database\Capsule\Manager`. It is opened when it is first used.
         *
         * @param array<string, mixed> $connection as in `config/database.php` of Laravel: driver, host, database, username, ...
         */
        public static function connect(#[\SensitiveParameter] array $connection, string $name = 'default'): void
        {
            self::$instance ??= self::start();
            self::$instance->manager->addConnection($connection, $name);
        }

        private static function start(): self
        {
            Runtime\Libraries::load('Database', \Illuminate\Database\Capsule\Manager::class);
            $manager = new \Illuminate\Database\Capsule\Manager();
            if (\class_exists(\Illuminate\Events\Dispatcher::class)) {
                $manager->setEventDispatcher(new \Illuminate\Events\Dispatcher($manager->getContainer()));
            }
            $manager->setAsGlobal();
            $manager->bootEloquent();
            self::checkConnections();
            if (\class_exists(\Illuminate\Pagination\Paginator::class)) {
                \Illuminate\Pagination\Paginator::currentPathResolver(static fn (): string => Request::current()->path());
                \Illuminate\Pagination\Paginator::currentPageResolver(
                    static fn (string $name = 'page'): int => \max(1, (int) \filter_var($_GET[$name] ?? 1, \FILTER_VALIDATE_INT))
                );
            }
            $eloquent = new self($manager);
            Runtime\Libraries::add($eloquent);
            return $eloquent;
        }

        /** Uses connections that notice in time that the database has closed them. */
        private static function checkConnections(): void
        {
            \Illuminate\Database\Connection::resolverFor('mysql', static fn (mixed ...$of) =>
                new class (...$of) extends \Illuminate\Database\MySqlConnection {
                    use Runtime\CheckedConnection;
                });
            \Illuminate\Database\Connection::resolverFor('pgsql', static fn (mixed ...$of) =>
                new class (...$of) extends \Illuminate\Database\PostgresConnection {
                    use Runtime\CheckedConnection;
                });
        }

        public function save(): void
        {
            $this->default = $this->manager->getDatabaseManager()->getDefaultConnection();
            $this->unguarded = \Illuminate\Database\Eloquent\Model::isUnguarded();
            $this->preventsLazyLoading = \Illuminate\Database\Eloquent\Model::preventsLazyLoading();
            foreach (\array_keys($this->manager->getContainer()['config']['database.connections']) as $name) {
                $connection = $this->manager->getConnection($name);
                $this->connections[$name] = [$connection->logging(), $connection->getEventDispatcher()];
                $this->reset($connection, $name);
            }
        }

        public function restore(): void
        {
            foreach ($this->manager->getDatabaseManager()->getConnections() as $name => $connection) {
                if ($connection->transactionLevel() > 0 || self::hasTransaction($connection)) {
                    $connection = $this->rollBack($connection, $name);
                }
                $this->reset($connection, $name);
            }
            $this->manager->getDatabaseManager()->setDefaultConnection($this->default);
            \Illuminate\Database\Eloquent\Model::unguard($this->unguarded);
            \Illuminate\Database\Eloquent\Model::preventLazyLoading($this->preventsLazyLoading);
        }

        private static function hasTransaction(\Illuminate\Database\Connection $connection): bool
        {
            $pdo = $connection->getRawPdo();
            return $pdo instanceof \PDO && $pdo->inTransaction();
        }

        /** Ends an open transaction. If that fails, the connection is replaced by a new one. */
        private function rollBack(\Illuminate\Database\Connection $connection, string $name): \Illuminate\Database\Connection
        {
            \set_error_handler(Db::isWarningOfLoss(...));
            try {
                $connection->rollBack(0);
                if (self::hasTransaction($connection)) {
                    $connection->getPdo()->rollBack();
                }
            } catch (Throwable) {
                $this->manager->getDatabaseManager()->purge($name);
                $connection = $this->manager->getConnection($name);
            } finally {
                \restore_error_handler();
            }
            Db::leftOpen($name);
            return $connection;
        }

        /** Removes what a request has left in a connection: logged queries, listeners. */
        private function reset(\Illuminate\Database\Connection $connection, string $name): void
        {
            [$logs, $events] = $this->connections[$name] ?? [false, null];
            $connection->flushQueryLog();
            $logs ? $connection->enableQueryLog() : $connection->disableQueryLog();
            $connection->forgetRecordModificationState();
            if ($events !== null) {
                // Listeners that a request adds are added to the copy.
                $connection->setEventDispatcher(clone $events);
            }
        }
    }

    /** Blade in a resident worker: compiled views stay, and nothing of a request is left in the views of the next. */
    final class Blade implements LibraryState
    {
        private static ?self $instance = null;

        /** @var array<string, mixed> the values for all views */
        private array $shared = [];
        /** @var array<string> the folders of views */
        private array $folders = [];

        private function __construct(
            private \Illuminate\View\Factory $factory,
            private \Illuminate\View\FileViewFinder $finder,
            private \Illuminate\Events\Dispatcher $events,
        ) {
        }

        /**
         * Sets the folder of views, and the folder of compiled views, which only the user of PHP may be able to write to.
         * Returns the factory, for `share()` and `composer()`.
         *
         * @param string|list<string> $folders
         */
        public static function views(string|array $folders, string $compiled): \Illuminate\View\Factory
        {
            Runtime\Libraries::load('View', \Illuminate\View\Factory::class);
            if (!\is_dir($compiled) && !@\mkdir($compiled, 0o700, true) && !\is_dir($compiled)) {
                throw new \LogicException("the folder of compiled views cannot be created: $compiled");
            }
            if (!\is_writable($compiled)) {
                throw new \LogicException("the folder of compiled views cannot be written to: $compiled");
            }
            // Another worker may run a view while this one compiles it.
            $files = new class () extends \Illuminate\Filesystem\Filesystem {
                public function put($path, $contents, $lock = false): int
                {
                    $this->replace($path, $contents);
                    return \strlen($contents);
                }
            };
            $compiler = new \Illuminate\View\Compilers\BladeCompiler($files, \realpath($compiled));
            $engines = new \Illuminate\View\Engines\EngineResolver();
            $engines->register('blade', static fn () => new \Illuminate\View\Engines\CompilerEngine($compiler, $files));
            $engines->register('php', static fn () => new \Illuminate\View\Engines\PhpEngine($files));
            $finder = new \Illuminate\View\FileViewFinder($files, (array) $folders);
            $container = \Illuminate\Container\Container::getInstance();
            $events = new \Illuminate\Events\Dispatcher($container);
            $factory = new \Illuminate\View\Factory($engines, $finder, $events);
            $factory->setContainer($container);
            // Components find the factory and the compiler there.
            $container->instance('view', $factory);
            $container->instance(\Illuminate\Contracts\View\Factory::class, $factory);
            $container->instance('blade.compiler', $compiler);
            $container->instance(\Illuminate\Contracts\Foundation\Application::class, new class () {
                public function getNamespace(): string
                {
                    return 'App\\';
                }
            });
            if (self::$instance === null) {
                self::$instance = new self($factory, $finder, $events);
                Runtime\Libraries::add(self::$instance);
            } else {
                self::$instance->__construct($factory, $finder, $events);
            }
            return $factory;
        }

        /** Whether views() was called. */
        public static function isUsed(): bool
        {
            return self::$instance !== null;
        }

        /**
         * The output of a view.
         *
         * @param array<string, mixed> $values
         */
        public static function view(string $name, array $values = []): string
        {
            return self::factory()->make($name, $values)->render();
        }

        public static function factory(): \Illuminate\View\Factory
        {
            return self::$instance?->factory ?? throw new \LogicException('there is no folder of views: Blade::views()');
        }

        /** @internal What a view has thrown, without the exceptions that Blade wraps around it. */
        public static function cause(Throwable $error): Throwable
        {
            while ($error instanceof \Illuminate\View\ViewException && $error->getPrevious() !== null) {
                $error = $error->getPrevious();
            }
            return $error;
        }

        public function save(): void
        {
            $this->shared = $this->factory->getShared();
            $this->folders = $this->finder->getPaths();
            $this->factory->setDispatcher(clone $this->events);
        }

        public function restore(): void
        {
            $this->factory->flushState();
            if ($this->factory->getShared() !== $this->shared) {
                $shared = $this->shared;
                (function () use ($shared): void {
                    $this->shared = $shared;
                })->call($this->factory);
            }
            $this->factory->setDispatcher(clone $this->events);
            // After an exception the engine has a list of views that it did not finish.
            $this->factory->getEngineResolver()->forget('blade');
            if ($this->finder->getPaths() !== $this->folders || Worker::$development) {
                $this->finder->setPaths($this->folders);
                $this->finder->flush();
            }
        }
    }

    /** Databases: one persistent connection for each name and worker, which is reopened after it was lost. */
    final class Db
    {
        /** The maximum number of prepared statements of a connection. */
        private const STATEMENTS = 128;

        /** @var array<string, self> */
        private static array $pool = [];
        private static ?Closure $quietly = null;

        private ?\PDO $pdo = null;
        /** @var array<string, \PDOStatement> */
        private array $statements = [];

        /** @param array<int, mixed> $options */
        private function __construct(
            private string $name,
            private string $dsn,
            private ?string $user,
            #[\SensitiveParameter] private ?string $password,
            private array $options,
        ) {
        }

        /**
         * Configures a connection. It is opened when it is first used.
         *
         * @param array<int, mixed> $options of PDO
         */
        public static function configure(
            string $dsn,
            ?string $user = null,
            #[\SensitiveParameter] ?string $password = null,
            array $options = [],
            string $name = 'default',
        ): self {
            return self::$pool[$name] = new self($name, $dsn, $user, $password, $options);
        }

        public static function get(string $name = 'default'): self
        {
            return self::$pool[$name] ?? throw new \LogicException("there is no database $name: Db::configure()");
        }

        /** The PDO object. If the application keeps it, it is not replaced after a lost connection. */
        public function pdo(): \PDO
        {
            return $this->pdo ??= new \PDO($this->dsn, $this->user, $this->password, $this->options + [
                \PDO::ATTR_ERRMODE => \PDO::ERRMODE_EXCEPTION,
                \PDO::ATTR_DEFAULT_FETCH_MODE => \PDO::FETCH_ASSOC,
                \PDO::ATTR_EMULATE_PREPARES => false,
            ]);
        }

        /** @param array<int|string, mixed> $values */
        private function execute(string $sql, array $values): \PDOStatement
        {
            for ($again = false;; $again = true) {
                $inTransaction = $this->pdo?->inTransaction() ?? false;
                try {
                    $statement = $this->statements[$sql] ?? null;
                    if ($statement === null) {
                        if (\count($this->statements) >= self::STATEMENTS) {
                            \array_shift($this->statements);
                        }
                        $statement = $this->pdo()->prepare($sql);
                        $this->statements[$sql] = $statement;
                    }
                    // mysqlnd raises a warning about a lost connection besides the exception.
                    \set_error_handler(self::$quietly ??= self::isWarningOfLoss(...));
                    try {
                        $statement->execute($values);
                    } finally {
                        \restore_error_handler();
                    }
                    return $statement;
                } catch (\PDOException $error) {
                    unset($this->statements[$sql]);
                    if (!self::isLost($error)) {
                        throw $error;
                    }
                    $this->close();
                    // In a transaction, previous statements are lost, too; a statement that may have taken effect is not repeated.
                    if ($again || $inTransaction || !self::mayRepeat($error, $sql)) {
                        throw $error;
                    }
                    Log::info("database $this->name: the connection was lost and is opened again");
                }
            }
        }

        /** @internal */
        public static function isWarningOfLoss(int $level, string $text): bool
        {
            return \preg_match('/gone away|Packets out of order|Error reading/', $text) === 1;
        }

        /** @internal */
        public static function isLost(\PDOException $error): bool
        {
            $state = (string) ($error->errorInfo[0] ?? $error->getCode());
            $code = (int) ($error->errorInfo[1] ?? 0);
            return \in_array($code, [2006, 2013, 4031], true)
                || \preg_match('/^(?:08|57P0[123]$)/', $state) === 1
                || \preg_match('/server closed the connection|gone away/', $error->getMessage()) === 1;
        }

        /** @internal Whether the statement cannot have taken effect: it was not sent, or only reads. */
        public static function mayRepeat(\PDOException $error, string $sql): bool
        {
            return \in_array((int) ($error->errorInfo[1] ?? 0), [2006, 4031], true)
                || \preg_match('/^\s*SELECT\b(?!.*\bFOR\s+(?:UPDATE|SHARE)\b)/is', $sql) === 1;
        }

        /**
         * @param array<int|string, mixed> $values
         * @return list<array<string, mixed>> all rows
         */
        public function all(string $sql, array $values = []): array
        {
            $statement = $this->execute($sql, $values);
            $rows = $statement->fetchAll();
            $statement->closeCursor();
            return $rows;
        }

        /**
         * @param array<int|string, mixed> $values
         * @return array<string, mixed>|null the first row
         */
        public function one(string $sql, array $values = []): ?array
        {
            $statement = $this->execute($sql, $values);
            $row = $statement->fetch();
            $statement->closeCursor();
            return $row === false ? null : $row;
        }

        /**
         * The first column of the first row.
         *
         * @param array<int|string, mixed> $values
         */
        public function value(string $sql, array $values = []): mixed
        {
            $row = $this->one($sql, $values);
            return $row === null ? null : \reset($row);
        }

        /**
         * @param array<int|string, mixed> $values
         * @return int the number of changed rows
         */
        public function run(string $sql, array $values = []): int
        {
            $statement = $this->execute($sql, $values);
            $count = $statement->rowCount();
            $statement->closeCursor();
            return $count;
        }

        public function lastId(): string
        {
            return (string) $this->pdo()->lastInsertId();
        }

        /** Runs $do in a transaction, which is rolled back if $do throws. */
        public function transaction(callable $do): mixed
        {
            // Check first whether the idle connection was lost.
            if ($this->pdo !== null && !$this->pdo->inTransaction()) {
                $this->value('SELECT 1');
            }
            $pdo = $this->pdo();
            $pdo->beginTransaction();
            try {
                $result = $do($this);
                $pdo->commit();
                return $result;
            } catch (Throwable $error) {
                try {
                    if ($pdo->inTransaction()) {
                        $pdo->rollBack();
                    }
                } catch (\PDOException) {
                    $this->close();
                }
                throw $error;
            }
        }

        public function close(): void
        {
            $this->statements = [];
            $this->pdo = null;
        }

        /** @internal Rolls back open transactions at the end of a request. */
        public static function endRequest(): void
        {
            foreach (self::$pool as $name => $db) {
                if ($db->pdo !== null && $db->pdo->inTransaction()) {
                    try {
                        $db->pdo->rollBack();
                    } catch (\PDOException) {
                        $db->close();
                    }
                    self::leftOpen($name);
                }
            }
        }

        /** @internal Reports a transaction that a request has left open. */
        public static function leftOpen(string $name): void
        {
            $what = "open transaction of database $name (rolled back)";
            Worker::$resident ? Worker::leaked($what) : Log::warning($what);
        }
    }

    /** A cache with expiry: in APCu, shared by the pool's processes, or in this worker. */
    final class Cache
    {
        /** The maximum number of values in a worker without APCu. */
        private const MAX = 10000;

        /** @var array<string, array{float, mixed}> the expiry times and values */
        private static array $values = [];
        private static ?bool $shared = null;

        private static function isShared(): bool
        {
            return self::$shared ??= \function_exists('apcu_enabled') && \apcu_enabled();
        }

        public static function get(string $key, mixed $default = null): mixed
        {
            if (self::isShared()) {
                $value = \apcu_fetch("apus:$key", $found);
                return $found ? $value : $default;
            }
            [$until, $value] = self::$values[$key] ?? [0.0, null];
            if ($until > \microtime(true)) {
                return $value;
            }
            unset(self::$values[$key]);
            return $default;
        }

        /** @param float $ttl seconds */
        public static function set(string $key, mixed $value, float $ttl): void
        {
            if (self::isShared()) {
                \apcu_store("apus:$key", $value, (int) \max(1, \ceil($ttl)));
                return;
            }
            unset(self::$values[$key]);
            if (\count(self::$values) >= self::MAX) {
                $now = \microtime(true);
                self::$values = \array_filter(self::$values, static fn (array $entry): bool => $entry[0] > $now);
                // Remove the oldest first.
                self::$values = \array_slice(self::$values, \max(0, \count(self::$values) - self::MAX + self::MAX / 10), null, true);
            }
            self::$values[$key] = [\microtime(true) + $ttl, $value];
        }

        public static function delete(string $key): void
        {
            if (self::isShared()) {
                \apcu_delete("apus:$key");
            }
            unset(self::$values[$key]);
        }

        /** The value; $make creates it if there is none. */
        public static function remember(string $key, float $ttl, callable $make): mixed
        {
            static $none = null;
            $none ??= new \stdClass();
            $value = self::get($key, $none);
            if ($value === $none) {
                $value = $make();
                self::set($key, $value, $ttl);
            }
            return $value;
        }
    }

    /** Lines for the server's log, which adds the request. */
    final class Log
    {
        /** @param array<string, mixed> $context */
        public static function error(string $text, array $context = []): void
        {
            self::write(3, $text, $context);
        }

        /** @param array<string, mixed> $context */
        public static function warning(string $text, array $context = []): void
        {
            self::write(4, $text, $context);
        }

        /** @param array<string, mixed> $context */
        public static function info(string $text, array $context = []): void
        {
            self::write(6, $text, $context);
        }

        /** @param array<string, mixed> $context */
        public static function debug(string $text, array $context = []): void
        {
            self::write(7, $text, $context);
        }

        /** @param array<string, mixed> $context */
        private static function write(int $level, string $text, array $context): void
        {
            if ($context !== []) {
                $flags = \JSON_UNESCAPED_SLASHES | \JSON_UNESCAPED_UNICODE;
                $text .= ' ' . \json_encode($context, $flags | \JSON_PARTIAL_OUTPUT_ON_ERROR | \JSON_INVALID_UTF8_SUBSTITUTE);
            }
            Worker::$resident ? Worker::log($level, \substr($text, 0, 60000)) : \error_log($text);
        }
    }

    /** Background tasks. */
    final class Task
    {
        /** @var list<callable> */
        private static array $after = [];

        /** Queues a task of App::task() for an idle worker. Under plain FastCGI it runs after this response. */
        public static function queue(string $name, mixed $payload = null, float $delay = 0): void
        {
            Channel::check($name);
            $bytes = \json_encode($payload, \JSON_THROW_ON_ERROR);
            if (Worker::$resident) {
                Worker::command(2, $name, \pack('V', (int) \max(0, \round($delay * 1000))) . $bytes);
            } else {
                self::$after[] = static fn () => App::$current?->runTask($name, $bytes);
            }
        }

        /** Runs a function in this worker, after the response was sent. */
        public static function after(callable $do): void
        {
            self::$after[] = $do;
        }

        /** @internal */
        public static function hasAfter(): bool
        {
            return self::$after !== [];
        }

        /** @internal */
        public static function runAfter(): void
        {
            if (self::$after === []) {
                return;
            }
            if (!Worker::$resident && \function_exists('fastcgi_finish_request')) {
                \fastcgi_finish_request();
            }
            while (self::$after !== []) {
                $do = \array_shift(self::$after);
                try {
                    $do();
                } catch (Throwable $error) {
                    Log::error((string) $error);
                }
            }
        }
    }

    /** Channels: rooms of WebSockets and streams of server-sent events, which the server holds. Resident only. */
    final class Channel
    {
        /** Publishes a message to all sockets in the room; event streams get it as data. */
        public static function publish(string $channel, string $message, bool $binary = false): void
        {
            Worker::command(1, self::check($channel), $message, $binary ? 1 : 0);
        }

        /** Publishes an event to event streams only. */
        public static function event(string $channel, string $data, ?string $event = null, ?string $id = null): void
        {
            $text = '';
            foreach (['event' => $event, 'id' => $id] as $field => $value) {
                if ($value !== null) {
                    if (\strcspn($value, "\r\n\0") !== \strlen($value)) {
                        throw new \InvalidArgumentException("a line end in the $field of an event");
                    }
                    $text .= "$field: $value\n";
                }
            }
            foreach (\preg_split('/\r\n|\r|\n/', $data) ?: [] as $line) {
                $text .= "data: $line\n";
            }
            Worker::command(1, self::check($channel), "$text\n", 2);
        }

        /** @internal Names are restricted, so that they are valid in header fields. */
        public static function check(string $name): string
        {
            if (\preg_match('#^[A-Za-z0-9._:/@-]{1,128}$#D', $name) !== 1) {
                throw new \InvalidArgumentException("not a name of a channel, task or timer: $name");
            }
            return $name;
        }
    }

    /** A WebSocket, whose connection the server holds. */
    final class Socket
    {
        public function __construct(public readonly string $id, private string $data = '')
        {
        }

        /** Another socket, by its id. */
        public static function of(string $id): self
        {
            return new self($id);
        }

        public function send(string $message, bool $binary = false): void
        {
            Worker::command(6, $this->id, $message, $binary ? 1 : 0);
        }

        public function join(string $room): void
        {
            Worker::command(3, Channel::check($room), $this->id);
        }

        public function leave(string $room): void
        {
            Worker::command(4, Channel::check($room), $this->id);
        }

        public function close(int $code = 1000, string $reason = ''): void
        {
            Worker::command(5, $this->id, \pack('v', $code) . $reason);
        }

        /** Keeps a value with the socket, as any worker may get its later events. */
        public function keep(mixed $value): void
        {
            $this->data = \json_encode($value, \JSON_THROW_ON_ERROR);
            Worker::command(7, $this->id, $this->data);
        }

        /** The value that was kept. */
        public function kept(): mixed
        {
            return $this->data === '' ? null : \json_decode($this->data, true);
        }
    }
}


namespace {

    use Apus\Runtime\Worker;

    if (!Worker::isEntryPoint(__FILE__)) {
        return;
    }
}

namespace {

    use Apus\App;
    use Apus\Log;
    use Apus\Runtime\Functions;
    use Apus\Runtime\Request;
    use Apus\Runtime\Worker;

    if (!function_exists('frankenphp_handle_request')) {
        /** FrankenPHP's worker function: waits for a request and calls $callback. False if the worker is to end. */
        function frankenphp_handle_request(callable $callback): bool
        {
            if (!Worker::next()) {
                return false;
            }
            if (Worker::$event !== null) {
                http_response_code(501);
            } else {
                try {
                    $callback();
                } catch (Throwable $error) {
                    Worker::caught($error);
                }
            }
            Worker::finish();
            return true;
        }

        /** Sends the response now; the script continues. */
        function frankenphp_finish_request(): bool
        {
            return Worker::finishEarly();
        }

        /**
         * The header fields of the request.
         *
         * @return array<string, string>
         */
        function frankenphp_request_headers(): array
        {
            return Request::headers();
        }

        /**
         * The header fields of the response so far; of several with the same name, the last.
         *
         * @return array<string, string>|bool
         */
        function frankenphp_response_headers(): array|bool
        {
            return Worker::responseHeaders();
        }

        /** FrankenPHP's levels, which Go's log/slog defines. */
        define('FRANKENPHP_LOG_LEVEL_DEBUG', -4);
        define('FRANKENPHP_LOG_LEVEL_INFO', 0);
        define('FRANKENPHP_LOG_LEVEL_WARN', 4);
        define('FRANKENPHP_LOG_LEVEL_ERROR', 8);

        /**
         * A line for the server's log, with any level: the next lower constant counts.
         *
         * @param array<string, mixed> $context
         */
        function frankenphp_log(string $message, int $level = FRANKENPHP_LOG_LEVEL_INFO, array $context = []): void
        {
            match (true) {
                $level >= FRANKENPHP_LOG_LEVEL_ERROR => Log::error($message, $context),
                $level >= FRANKENPHP_LOG_LEVEL_WARN => Log::warning($message, $context),
                $level >= FRANKENPHP_LOG_LEVEL_INFO => Log::info($message, $context),
                default => Log::debug($message, $context),
            };
        }
    }

    if (!function_exists('headers_send')) {
        /**
         * FrankenPHP's function: sends the header fields so far with an interim status such as 103, after which the script
         * continues, or as the head of the response.
         */
        function headers_send(int $status = 200): int
        {
            if ($status >= 100 && $status < 200) {
                return (int) Worker::inform($status);
            }
            http_response_code($status);
            Worker::sendHead();
            return 0;
        }
    }

    if (!function_exists('apache_response_headers')) {
        /** @return array<string, string> */
        function apache_response_headers(): array
        {
            return Worker::responseHeaders();
        }
    }

    /** Sends the output so far. */
    function apus_flush(): void
    {
        Worker::flush();
    }

    /** Calls a function at the end of this request, as register_shutdown_function() does under plain FastCGI. */
    function apus_at_end(callable $function, mixed ...$arguments): void
    {
        Worker::atEnd($function, $arguments);
    }

    if (!function_exists('fastcgi_finish_request')) {
        function fastcgi_finish_request(): bool
        {
            return Worker::finishEarly();
        }
    }

    if (!function_exists('ob_get_level')) {
        Functions::$levelIsReplaced = true;

        /** The lowest buffer belongs to the runtime and does not count. */
        function ob_get_level(): int
        {
            return max(0, count(ob_list_handlers()) - 1);
        }
    }

    if (!function_exists('flush')) {
        function flush(): void
        {
            Worker::flush(false);
        }
    }

    if (!function_exists('is_uploaded_file') && !function_exists('move_uploaded_file')) {
        Functions::$uploadsAreReplaced = true;

        function is_uploaded_file(string $filename): bool
        {
            return Request::isUpload($filename);
        }

        function move_uploaded_file(string $from, string $to): bool
        {
            return Request::moveUpload($from, $to);
        }
    }

    if (!function_exists('getallheaders')) {
        /** @return array<string, string> */
        function getallheaders(): array
        {
            return Request::headers();
        }
    }

    if (!function_exists('apache_request_headers')) {
        /** @return array<string, string> */
        function apache_request_headers(): array
        {
            return Request::headers();
        }
    }

    if (!function_exists('connection_aborted')) {
        function connection_aborted(): int
        {
            return Worker::$cancelled ? 1 : 0;
        }
    }

    Functions::declareForLibraries();
    if (!Worker::boot()) {
        return;
    }

    // The application's script runs in the global scope, as it does without the runtime.
    if (Worker::$mode === 'worker') {
        require Worker::$script;
    } elseif (Worker::$mode === 'classic') {
        Worker::ready();
        while (Worker::next()) {
            try {
                require Worker::script();
            } catch (Throwable $apusError) {
                Worker::caught($apusError);
            }
            if (!Worker::endClassic()) {
                break;
            }
        }
    } else {
        require Worker::$script;
        if (App::$current === null) {
            Worker::fail('the script ended without calling run() of an Apus\App');
        } else {
            Worker::serve(App::$current);
        }
    }
}
