@extends('layout')
@section('body')
<p>{{ $text }} {!! $text !!}</p>
@endsection
@push('scripts')
<i>script</i>
@endpush
