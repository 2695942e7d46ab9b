@extends('layout')
