{{ $site }} {{ $secret ?? 'none' }} {{ $text }}
