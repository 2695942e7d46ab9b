<title>{{ $site }}</title>
@yield('body')
@stack('scripts')
