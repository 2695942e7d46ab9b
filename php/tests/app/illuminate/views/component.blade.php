<x-note kind="info">{{ $text }}</x-note>
