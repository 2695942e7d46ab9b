@props(['kind'])
<b class="{{ $kind }}">{{ $slot }}</b>
