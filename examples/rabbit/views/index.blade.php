@extends('layout')
@section('title', $user->name)
@section('body')
<h1>{{ $user->name }}</h1>
<dl>
<dt>Number</dt><dd>{{ $user->id }}</dd>
<dt>Mail</dt><dd><a href="mailto:{{ $user->email }}">{{ $user->email }}</a></dd>
</dl>
@if ($language === 'zh')
<p>欢迎回来！ 今天您想做什么？</p>
@else
<p>Welcome back! This page has one row of the database, by Eloquent, and one view, by Blade. What do you want to do today?</p>
@endif
@endsection
