<?php

// A worker script that registers a stream wrapper and sets contexts while it is loaded.

declare(strict_types=1);

final class OwnStream
{
    /** @var resource|null */
    public $context;
    private bool $isRead = false;

    public function stream_open(string $path, string $mode, int $options, ?string &$opened): bool
    {
        return true;
    }

    public function stream_read(int $length): string
    {
        $text = $this->isRead ? '' : '<x>' . json_encode(stream_context_get_options($this->context)) . '</x>';
        $this->isRead = true;
        return $text;
    }

    public function stream_eof(): bool
    {
        return $this->isRead;
    }

    /** @return array<string, int> */
    public function stream_stat(): array
    {
        return [];
    }

    /** @return array<string, int> */
    public function url_stat(string $path, int $flags): array
    {
        return ['size' => 1, 'mode' => 0100444];
    }
}

stream_wrapper_register('own', OwnStream::class);
stream_wrapper_unregister('ftp');
stream_wrapper_register('ftp', OwnStream::class);
stream_context_set_default(['own' => ['of' => 'all']]);
libxml_set_streams_context(stream_context_create(['own' => ['of' => 'xml']]));
$handle = static function (): void {
    $see = static function (): void {
        $document = new DOMDocument();
        $document->load('own://x');
        echo file_get_contents('own://x'), file_get_contents('ftp://x'), $document->textContent, ' ', strlen(file_get_contents('php://input'));
    };
    match ($_SERVER['REQUEST_URI']) {
        '/' => $see(),
        // What is set to what it is already is no change.
        '/same' => print_r(stream_context_set_default(['own' => ['of' => 'all']]), true),
        '/other' => stream_context_set_default(['own' => ['of' => 'other']]),
        '/wrapper' => stream_wrapper_register('one', OwnStream::class) && stream_wrapper_unregister('http'),
        '/xml' => libxml_set_streams_context(stream_context_create()),
        '/remove' => stream_wrapper_unregister('own'),
        '/replace' => stream_wrapper_unregister('ftp') && stream_wrapper_restore('ftp'),
    };
};
while (frankenphp_handle_request($handle)) {
}
