<p>@php throw new Apus\HttpException(410, 'It is gone.'); @endphp</p>
